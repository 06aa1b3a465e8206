"""What is read from the events of a harmed run, and what counts as a promise kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drills.__main__ import drills
from drills.catalogue import catalogue, short_catalogue
from drills.event_log import EventLog
from drills.figure import draw
from drills.outcome import Outcome, longest_pause, lost_steps
from drills.promises import Promise
from drills.table import COLUMNS, as_document, as_markdown, rows_of
from minga.errors import UsageError
from minga.measure.events import Event, RankRecovered, Stepped


def write(folder: Path, who: str, *events: Event) -> None:
    folder.mkdir(exist_ok=True)
    with (folder / f"{who}.jsonl").open("a") as file:
        file.writelines(event.to_json() + "\n" for event in events)


def step(time: float, number: int) -> Stepped:
    counts = {"samples": 32, "bytes_sent": 0, "messages_sent": 0}
    return Stepped(time=time, step=number, progress=0.5, epoch=1.0, loss=None, seconds={}, **counts)


def recovered(time: float, number: int, generation: int = 2, owed: int = 0) -> RankRecovered:
    place: dict[str, Any] = {"rank": 0, "ranks": 2, "generation": generation, "members": ["node-0", "node-1"]}
    return RankRecovered(time=time, step=number, owed=owed, seconds=0.1, reason="one is gone", **place)


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    """Harm at 10.0 to rank 2; the others go on 1.5 and 1.4 s later, and one step was for nothing."""
    write(tmp_path, "rank-0", step(9.9, 4), step(10.1, 5), recovered(11.0, 4), step(11.6, 5), step(11.7, 6))
    write(tmp_path, "rank-1", step(9.9, 4), recovered(11.1, 4, owed=32), step(11.4, 5), step(11.7, 6))
    write(tmp_path, "rank-2", step(9.9, 4), step(30.0, 5))
    found = EventLog(tmp_path)
    found.read()
    return found


def test_the_longest_pause_is_that_of_those_who_were_not_harmed(log: EventLog) -> None:
    assert longest_pause(log, 10.0, {"rank-2"}) == pytest.approx(1.5)
    assert longest_pause(log, 10.0, set()) == pytest.approx(20.0)
    assert longest_pause(log, 100.0, set()) is None


def test_who_was_lost_without_being_harmed_has_paused_until_the_end(log: EventLog) -> None:
    last = max(steps[-1][0] for who, steps in log.steps.items() if who != "rank-2")
    log.steps["rank-3"] = [(9.0, 5)]
    assert longest_pause(log, 10.0, {"rank-2"}) == pytest.approx(last - 10)
    log.steps["rank-3"].append((10.1, 6))
    assert longest_pause(log, 10.0, {"rank-2"}) == pytest.approx(last - 10.1)


def test_lost_is_what_was_done_before_and_is_done_again_and_what_is_owed(log: EventLog) -> None:
    assert lost_steps(log, 10.0, {"rank-2"}) == pytest.approx(1 + 32 / 64)
    assert lost_steps(log, 20.0, set()) == 0


def test_lines_that_are_still_being_written_are_read_later(tmp_path: Path) -> None:
    found = EventLog(tmp_path)
    line = step(1.0, 7).to_json() + "\n"
    with (tmp_path / "rank-0.jsonl").open("w") as file:
        file.write(line[:30])
        file.flush()
        found.read()
        assert found.last_step == 0
        file.write(line[30:])
        file.flush()
        found.read()
    assert found.last_step == 7


def test_a_file_that_was_replaced_is_read_anew_and_broken_lines_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, "rank-0", step(1.0, 1), step(2.0, 2), recovered(2.5, 2))
    found = EventLog(tmp_path)
    found.read()
    (tmp_path / "new").write_text(f"{step(1.0, 1).to_json()}\n{{cut short\n{step(3.0, 2).to_json()}\n")
    (tmp_path / "new").replace(tmp_path / "rank-0.jsonl")
    found.read()
    assert found.steps["rank-0"] == [(1.0, 1), (3.0, 2)]
    assert found.of(RankRecovered) == []


def test_what_a_node_that_joined_has_handed_over_does_not_count_twice(tmp_path: Path) -> None:
    write(tmp_path / "run", "rank-0", step(1.0, 1))
    write(tmp_path / "joined", "rank-4", step(1.0, 1), recovered(2.0, 1))
    found = EventLog(tmp_path / "run")
    found.add(tmp_path / "joined", "joined-1/")
    write(tmp_path / "run", "rank-4", step(1.0, 1), recovered(2.0, 1))
    found.read()
    assert set(found.steps) == {"rank-0", "joined-1/rank-4"}
    assert len(found.of(RankRecovered)) == 1


GOOD = {
    "survived": True,
    "problem": "",
    "recovery_seconds": 1.0,
    "lost_steps": 1.0,
    "accuracy": 0.975,
    "undisturbed": 0.98,
    "identical": True,
    "finished": 3,
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"recovery_seconds": 2.5}, "2.5 s without a step"),
        ({"recovery_seconds": None}, "nobody made a step"),
        ({"lost_steps": 2.0}, "2.0 steps lost"),
        ({"accuracy": 0.96}, "2.0 points"),
        ({"accuracy": 1.0}, None),
        ({"identical": False}, "different bits"),
        ({"finished": 2}, "2 came to the end"),
        ({"survived": False, "problem": "hangs: for ever"}, "hangs"),
    ],
)
def test_promises(change: dict[str, Any], words: str | None) -> None:
    broken = Promise(at_the_end=3).broken({**GOOD, **change})
    assert (words is None) == (not broken)
    assert words is None or words in broken[0]


def test_churn_promises_steps() -> None:
    assert Promise(ideal=0.9).broken({**GOOD, "ideal": 0.95}) == []
    assert "80 %" in Promise(ideal=0.9).broken({**GOOD, "ideal": 0.8})[0]


def test_the_table_has_a_line_for_each_fault_and_says_what_was_broken() -> None:
    outcomes = [
        Outcome(fault="a", trial=0, survived=True, lost_steps=0, recovery_seconds=0.5, accuracy=0.98, undisturbed=0.97),
        Outcome(fault="a", trial=1, survived=False, problem="hangs", broken=["hangs"]),
        Outcome(fault="b", trial=0, survived=False, skipped="not supported yet"),
    ]
    faults = {"a": {"words": "the first", "promised": Promise().to_dict()}, "b": {"words": "b", "promised": {}}}
    first, second = rows_of(outcomes, faults)
    assert first.cells == ("the first", "2", "1", "0 steps", "0.5 s", "98.0 %", "97.0 %", "hangs")
    assert second.cells[-1] == "not supported yet"
    assert (first.kept, second.kept) == (False, True)
    assert rows_of(outcomes[:1], {"a": {"words": "a", "promised": {}}})[0].cells[-1] == "-"
    text = as_markdown([first, second], "minga chaos")
    assert text.count("\n") == 6
    assert all(name in text for name in COLUMNS)
    assert as_document(outcomes, faults, seed=0, command="minga chaos")["kept"] is False
    document = as_document(outcomes[::2], faults, seed=0, command="minga chaos")
    assert document["kept"] is True
    assert document["faults"]["a"]["promised"]["recovery_seconds"] == 2
    picture = draw(json.loads(json.dumps(document)))
    assert "the first" in picture and "0.5 s" in picture


def test_every_fault_has_a_name_of_its_own_and_the_short_drill_has_some() -> None:
    faults = catalogue()
    assert len({fault.name for fault in faults}) == len(faults) > 15
    assert {fault.name for fault in short_catalogue()} < {fault.name for fault in faults}
    assert all(fault.promise.recovery_seconds is not None for fault in faults)


def test_the_faults_are_listed_and_others_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    drills(list_them=True)
    assert "kill-rank-0" in capsys.readouterr().out
    with pytest.raises(UsageError, match="Did you mean 'kill-rank-0'"):
        drills(only=["kil-rank-0"])
