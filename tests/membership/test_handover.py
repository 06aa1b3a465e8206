"""Nodes elsewhere hand over what they have written down, and nothing else is taken."""

from __future__ import annotations

import base64
import json
import logging
import time
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from people import at, join_all, make_coordinator, members

from minga.errors import ProtocolError, Refused
from minga.membership import visitors as module
from minga.membership.coordinator import coordinating
from minga.membership.messages import Handover
from minga.membership.visitors import Accounts, hand_over

TOML = 'workload = "digits"\n'


def packed(content: bytes) -> tuple[str, ...]:
    return (base64.b64encode(zlib.compress(content)).decode(),)


def a_handover(content: bytes, number: int = 1, boot: str = "elsewhere", clock: float = 0.0) -> Handover:
    return Handover(id="node-1", number=number, boot=boot, clock=clock, packed=packed(content), last=True)


def line(step: int, when: float = 1.0) -> str:
    return json.dumps({"event": "step", "time": when, "step": step, "loss": 0.5})


def test_a_file_arrives_as_it_is_without_what_was_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PART_BYTES", 1000)  # so that it comes in many parts
    file, events = tmp_path / "theirs.jsonl", tmp_path / "events"
    events.mkdir()
    whole = "".join(line(step) + "\n" for step in range(100))
    file.write_text(whole + line(100)[:-5])
    with (
        coordinating(make_coordinator(tmp_path, 1, description=TOML, events=events)) as where,
        members(*where, ids=["node-0"]) as them,
    ):
        join_all(them)
        hand_over(at(where), id="node-1", number=1, file=file)
        assert them[0].connected
    assert (events / "rank-1.jsonl").read_text() == whole  # the same machine: times as they are


def test_times_of_another_machine_are_on_this_ones_clock(tmp_path: Path) -> None:
    accounts = Accounts(tmp_path, own=[0])
    now = time.perf_counter()
    accounts.take(a_handover((line(7, when=990.0) + "\n").encode(), clock=1000.0))
    event = json.loads((tmp_path / "rank-1.jsonl").read_text())
    assert event["time"] == pytest.approx(now - 10, abs=1)
    assert event["step"] == 7
    assert accounts.missing({"node-0", "node-1", "node-2"}) == {"node-2"}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (a_handover(b"{}\n"), "no event"),
        (a_handover(b"[1]\n"), "no event"),
        (a_handover(b'{"event": "step", "time": "soon"}\n'), "no event"),
        (a_handover(b"\xff\n"), "unpacked"),
        (a_handover(b" " * (4 << 20)), "more than"),  # 4 MiB of the same are short when packed
        (replace(a_handover(b""), packed=("no base64",)), "unpacked"),
        (replace(a_handover(b""), packed=(packed(bytes(range(200)))[0][:120],)), "cut short"),
        (a_handover(b"", number=0), "not taken"),
        (a_handover(b"", number=10**9), "not taken"),
    ],
)
def test_what_is_no_events_is_refused(tmp_path: Path, wrong: Handover, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        Accounts(tmp_path, own=[0]).take(wrong)
    assert not any(tmp_path.iterdir())


def test_a_bad_account_is_refused_with_a_line_and_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "theirs.jsonl"
    file.write_text("nonsense\n")
    (tmp_path / "events").mkdir()
    with (
        caplog.at_level(logging.INFO),
        coordinating(make_coordinator(tmp_path, 1, description=TOML, events=tmp_path / "events")) as where,
        members(*where, ids=["node-0"]) as them,
    ):
        join_all(them)
        with pytest.raises((Refused, ConnectionError)):
            hand_over(at(where), id="node-1", number=1, file=file)
        assert "no event" in caplog.text
        assert them[0].connected


def test_the_coordinator_waits_for_the_account_of_who_has_finished_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    file = tmp_path / "theirs.jsonl"
    file.write_text(line(1) + "\n")
    coordinator = make_coordinator(tmp_path, 2, description=TOML, events=tmp_path / "events")
    with coordinating(coordinator) as where, members(*where, ids=["node-0", "node-1"]) as them:
        join_all(them)
        for member in them:
            member.leave(finished=True)
        time.sleep(0.5)
        hand_over(at(where), id="node-1", number=1, file=file)
    assert (tmp_path / "events" / "rank-1.jsonl").read_text() == line(1) + "\n"


def test_a_run_without_others_takes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "theirs.jsonl"
    file.write_text(line(1) + "\n")
    with coordinating(make_coordinator(tmp_path, 1)) as where:
        with pytest.raises(Refused, match="nobody elsewhere"):
            hand_over(at(where), id="node-1", number=1, file=file)
