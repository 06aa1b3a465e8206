"""The coordinator and members as processes: killed, stopped, started again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from people import RUN, TOKEN, data_port, form_all, join_all, members, until

from minga.membership.member import Change
from minga.membership.state_file import load, wait_for_address

pytestmark = pytest.mark.chaos

RULES = {"expect": 3, "heartbeat_seconds": 0.2, "heartbeat_timeout_seconds": 1.5}

MEMBER = """
import socket, sys, time
from minga.membership.member import Member
from minga.membership.protocol import CoordinatorAddress
from minga.net.generation import MemberInfo, new_incarnation
listening = socket.create_server(("127.0.0.1", 0))
info = MemberInfo(id=sys.argv[1], incarnation=new_incarnation(), address="127.0.0.1", port=listening.getsockname()[1])
member = Member(CoordinatorAddress(address="127.0.0.1", port=int(sys.argv[2]), token=sys.argv[3]), info)
number = 0
try:
    while True:
        number = (member.join(20) if number == 0 else member.wait_for_generation(number, 60)).number
        member.formed(number)
        print("generation", number, flush=True)
except Exception as error:
    print(type(error).__name__, error, flush=True)
"""


@contextlib.contextmanager
def coordinator_process(directory: Path, **arguments: Any) -> Iterator[subprocess.Popen[bytes]]:
    given = {"state": str(directory / "state.json"), "run": RUN, "token": TOKEN, "rules": RULES, **arguments}
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "minga.membership.coordinator"], stdin=subprocess.PIPE, stderr=log
        )
    assert process.stdin is not None
    with process.stdin as stream:
        stream.write(json.dumps(given).encode())
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def member_process(id: str, port: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", MEMBER, id, str(port), TOKEN], stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_kill_9_of_the_coordinator_and_of_a_member(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        # Only what others say can be quicker than this timeout, not even a busy machine makes it seem so.
        rules = {**RULES, "heartbeat_timeout_seconds": 4}
        first = stack.enter_context(coordinator_process(tmp_path, rules=rules))
        address, port = wait_for_address(tmp_path / "state.json", 20)
        victim = stack.enter_context(member_process("victim", port))
        them = stack.enter_context(members(address, port, ["a", "b"]))
        changes: list[Change] = []
        (generation, _) = join_all(them, 20)
        them[0].on_change(changes.append)
        assert len(generation.members) == 3
        until(lambda: load(tmp_path / "state.json").roster.formed)  # type: ignore[union-attr]

        first.kill()
        until(lambda: not any(member.connected for member in them))
        assert [member.generation for member in them] == [generation] * 2, "training goes on"
        second = stack.enter_context(coordinator_process(tmp_path, rules=rules, token=None))
        until(lambda: all(member.connected for member in them))
        time.sleep(0.5)
        assert changes == [], "nobody was disturbed"

        begin = time.monotonic()
        victim.kill()
        after = them[0].wait_for_generation(1, 5)
        assert time.monotonic() - begin < 2.0
        assert after.number == 2, "the numbers go on"
        assert [member.id for member in after.members] == ["a", "b"]
        them[1].wait_for_generation(1, 5)
        form_all(them)

        # The coordinator and a member at the same moment: the others say who is missing.
        stranger = stack.enter_context(member_process("late", port))
        assert them[0].wait_for_generation(2, 10).number == 3
        them[1].wait_for_generation(2, 5)
        form_all(them)
        until(lambda: load(tmp_path / "state.json").roster.formed)  # type: ignore[union-attr]
        second.kill()
        stranger.kill()
        third = stack.enter_context(coordinator_process(tmp_path, rules=rules))
        them[0].suspect(2, "connection reset", generation=3, broken=True)
        until(lambda: all(member.connected for member in them))
        begin = time.monotonic()
        assert them[0].wait_for_generation(3, 5).number == 4
        assert time.monotonic() - begin < 4.0
        them[1].wait_for_generation(3, 5)
        form_all(them)
        for member in them:
            member.leave(finished=True)
        assert third.wait(5) == 0, "the coordinator goes when all have finished"


def test_a_stopped_member_is_left_behind_and_told_when_it_wakes(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(coordinator_process(tmp_path))
        address, port = wait_for_address(tmp_path / "state.json", 20)
        sleeper = stack.enter_context(member_process("sleeper", port))
        them = stack.enter_context(members(address, port, ["a", "b"]))
        join_all(them, 20)
        assert sleeper.stdout is not None
        assert sleeper.stdout.readline() == "generation 1\n"
        os.kill(sleeper.pid, signal.SIGSTOP)
        begin = time.monotonic()
        assert len(them[0].wait_for_generation(1, 5).members) == 2
        assert 1.0 < time.monotonic() - begin < 2.5
        os.kill(sleeper.pid, signal.SIGCONT)
        told = sleeper.stdout.readline()
        assert told.startswith("Refused") and "sleeper is gone: gave no sign of life for 1.5 s" in told


def test_a_stopped_coordinator_blames_nobody_when_it_wakes(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(coordinator_process(tmp_path, rules={**RULES, "expect": 2}))
        address, port = wait_for_address(tmp_path / "state.json", 20)
        them = stack.enter_context(members(address, port, ["a", "b"]))
        join_all(them, 20)
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: them[0].lost_contact and them[1].lost_contact)
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGCONT)
        until(lambda: all(member.connected and not member.lost_contact for member in them))
        time.sleep(0.5)
        assert them[0].generation is not None and them[0].generation.number == 1


def test_it_listens_on_one_address_and_ends_on_request(tmp_path: Path) -> None:
    with coordinator_process(tmp_path) as process, data_port():
        _, port = wait_for_address(tmp_path / "state.json", 20)
        sockets = {str(link.readlink()) for link in Path(f"/proc/{process.pid}/fd").iterdir() if link.is_symlink()}
        found = []
        for name in ("tcp", "tcp6"):
            path = Path(f"/proc/{process.pid}/net/{name}")
            for line in path.read_text().splitlines()[1:] if path.exists() else []:
                fields = line.split()
                if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                    found.append(fields[1])
        assert found == [f"0100007F:{port:04X}"]
        process.terminate()
        assert process.wait(5) == 0
    assert "Traceback" not in (tmp_path / "log").read_text()
