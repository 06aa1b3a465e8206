"""Reading events back: through the dataclasses that wrote them, whatever stands in the file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.made_runs import make_run
from minga.measure.event_reader import EventReader, event_files, events_of, malformed_note, read_events
from minga.measure.events import Evaluated, Event, Finished, RankServing, Stepped, UnknownEvent

STEP: dict[str, Any] = {
    "time": 1.5,
    "step": 7,
    "progress": 0.5,
    "epoch": 1.0,
    "loss": 0.25,
    "samples": 16,
    "seconds": {"forward": 0.5, "wait": 0.25},
    "bytes_sent": 2**40,
    "messages_sent": 3,
}


def line_of(**changes: Any) -> str:
    return json.dumps({"event": "step", **STEP, **changes})


@pytest.mark.parametrize(
    "event",
    [
        Stepped(**STEP),
        Stepped(**{**STEP, "loss": None}),
        Evaluated(time=1.0, step=3, epoch=0.5, metrics={"F1": 0.5}, seconds=0.1, tables={"confusion": [[1.0]]}),
        RankServing(time=2.0),
    ],
)
def test_what_is_written_is_read(tmp_path: Path, event: Event) -> None:
    path = tmp_path / "rank-0.jsonl"
    path.write_text(event.to_json() + "\n")
    assert list(read_events(path)) == [event]


MALFORMED = {
    "no JSON": "{",
    "no object": "[1, 2]",
    "no name": '{"time": 1.0}',
    "a name that is no text": '{"event": 3, "time": 1.0}',
    "without its fields": '{"event":"finished","time":5.0}',
    "a time that is NaN": line_of().replace("1.5", "NaN"),
    "a time that is text": line_of(time="1.5"),
    "a number that is a truth value": line_of(step=True),
    "a fraction of a step": line_of(step=7.5),
    "spans that are none": line_of(seconds=[1.0]),
    "a span that is infinite": line_of().replace("0.25}", "Infinity}"),
    "no UTF-8": '{"event": "serving", "time": 1.0, "x": "\udcff"}',
    "nested without an end": "[" * 100_000,
    "a new event without a time": '{"event": "something new"}',
    "two that a crash has joined": line_of()[:40] + line_of(),
}


@pytest.mark.parametrize("line", MALFORMED.values(), ids=MALFORMED)
def test_malformed_lines_are_counted_and_passed_over(tmp_path: Path, line: str) -> None:
    path = tmp_path / "rank-0.jsonl"
    path.write_bytes(f"{line_of()}\n{line}\n{line_of(step=8)}\n".encode(errors="surrogateescape"))
    reader = EventReader(path)
    assert [event.step for event in reader.read() if isinstance(event, Stepped)] == [7, 8]
    assert reader.malformed == 1


def test_newer_versions_may_add_events_and_fields_and_metrics_may_be_nan(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.jsonl"
    evaluated = '{"event": "evaluated", "time": 3.0, "step": 1, "epoch": 1, "metrics": {"F1": NaN}, "seconds": 1}'
    path.write_text(line_of(added=[1]) + '\n{"event": "new", "time": 2, "name": "x"}\n' + evaluated + "\n")
    reader = EventReader(path)
    stepped, unknown, seen = reader.read()
    assert stepped == Stepped(**STEP)
    assert unknown == UnknownEvent(time=2.0, name="new")
    assert isinstance(seen, Evaluated) and seen.metrics["F1"] != seen.metrics["F1"]
    assert reader.malformed == 0


def test_a_growing_file_is_read_once_and_a_replaced_one_again(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.jsonl"
    path.write_text(line_of() + "\n" + line_of(step=8)[:50])
    reader = EventReader(path)
    assert len(list(reader.read())) == 1
    assert list(reader.read()) == [] and reader.malformed == 0  # cut short so far
    with path.open("a") as file:
        file.write(line_of(step=8)[50:] + "\n")
    assert list(reader.read()) == [Stepped(**{**STEP, "step": 8})]
    assert not reader.replaced
    (tmp_path / "new").write_text(line_of(step=9) + "\n")
    (tmp_path / "new").replace(path)
    assert list(reader.read()) == [Stepped(**{**STEP, "step": 9})]
    assert reader.replaced


def test_steps_can_be_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path, nodes=2)
    assert [event.samples for event in events_of(run, Finished)] == [2000, 2000]
    (first, _) = event_files(run)
    kinds = [event.event for event in EventReader(first, without_steps=True).read()]
    assert "step" not in kinds and kinds.count("evaluated") == 4


def test_the_note_says_how_many_and_where() -> None:
    assert malformed_note({"rank-0.jsonl": 0}) is None
    assert malformed_note({"a": 1}) == "1 malformed event passed over (in a): numbers may be incomplete."
    assert malformed_note({"a": 1, "b": 2}) == (
        "3 malformed events passed over (1 in a, 2 in b): numbers may be incomplete."
    )


def test_reading_and_reporting_need_no_torch(tmp_path: Path) -> None:
    run = make_run(tmp_path, nodes=2, bandwidth="10mbit", counters=True)
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from minga.report.summary import summarise\nfrom minga.report.write import write_report\n"
        f"assert summarise(Path({str(run)!r})).nodes == 2\n"
        f"write_report([Path({str(run)!r})], Path({str(tmp_path / 'out')!r}))\n"
        "assert not {'torch', 'minga.strategies'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
