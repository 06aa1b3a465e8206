"""Asking a coordinator what its run is about."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest
from people import at, data_port, info, join_all, make_coordinator, members, quick

from minga.errors import PeerTimeout, Refused, RunStopped
from minga.membership.coordinator import coordinating
from minga.membership.member import Member
from minga.membership.visitors import Numbers, ask

TOML = 'workload = "digits"\n\n[training]\nsteps = 3\n'


def test_the_description_is_told_to_who_knows_the_token(tmp_path: Path) -> None:
    with (
        coordinating(make_coordinator(tmp_path, 1, description=TOML)) as where,
        members(*where, ids=["node-0"]) as them,
    ):
        join_all(them)
        first, second = ask(at(where)), ask(at(where))
        assert "\n".join(first.lines) + "\n" == TOML
        assert first.run == "test-run"
        assert (first.number, second.number) == (1, 2)
        with pytest.raises(Refused, match="token is not that of the run"):
            ask(at(where, token="x" * 64), timeout_seconds=0)
        # Nothing of this has disturbed anybody.
        assert them[0].connected


def test_before_the_first_member_there_is_nothing_to_tell(tmp_path: Path) -> None:
    with coordinating(make_coordinator(tmp_path, 2, description=TOML)) as where:
        with pytest.raises(PeerTimeout, match="just starting"):
            ask(at(where), timeout_seconds=0)
        with members(*where, ids=["node-0"]) as (first,):
            asking = threading.Thread(target=first._start)
            asking.start()
            assert ask(at(where), timeout_seconds=5).number == 1
            asking.join()


def test_a_run_that_wants_nobody_else_says_so(tmp_path: Path) -> None:
    with coordinating(make_coordinator(tmp_path, 1)) as where, pytest.raises(Refused, match="--listen"):
        ask(at(where))


def test_a_visitor_may_ask_and_then_say_hello_and_others_may_say_nothing_more(tmp_path: Path) -> None:
    with (
        coordinating(make_coordinator(tmp_path, 1, description=TOML)) as where,
        members(*where, ids=["node-0"]) as them,
    ):
        join_all(them)
        number = ask(at(where)).number
        with data_port() as port:
            late = Member(at(where), info(f"node-{number}", port=port))
            try:
                assert len(late.join(5).members) == 2
            finally:
                late.close()


def test_nobody_answers(tmp_path: Path) -> None:
    with data_port() as port:
        pass
    began = time.monotonic()
    with pytest.raises(PeerTimeout, match="nobody listens there"):
        ask(at(("127.0.0.1", port)), timeout_seconds=0.5)
    assert time.monotonic() - began < 3


def test_somebody_else_listens_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port of something else is told from a machine that can't be reached: the remedy is another one."""
    monkeypatch.setattr("minga.membership.protocol._GREETING_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(PeerTimeout, match="is this the port"):
        ask(at(silent.getsockname()), timeout_seconds=0)
    with socket.create_server(("127.0.0.1", 0)) as web:

        def answer() -> None:
            with web.accept()[0] as connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(4096)

        answering = threading.Thread(target=answer)
        answering.start()
        with pytest.raises(Refused, match=r"it begins with 'HTTP.*is the port right"):
            ask(at(web.getsockname()), timeout_seconds=0)
        answering.join()


def test_members_hear_that_the_run_was_ended(tmp_path: Path) -> None:
    coordinator = make_coordinator(tmp_path, 2, description=TOML)
    with coordinating(coordinator) as where, members(*where, ids=["a", "b"]) as them:
        join_all(them)
        coordinator.stop()
        for member in them:
            with pytest.raises(RunStopped, match="ended where it was started"):
                member.wait_for_generation(1, 5)


def test_a_coordinator_that_everybody_has_left_gives_up(tmp_path: Path) -> None:
    coordinator = make_coordinator(tmp_path, 1, rules=quick(1), abandoned_seconds=0.5, description=TOML)
    with coordinating(coordinator) as where:
        with members(*where, ids=["a"]) as them:
            join_all(them)
        deadline = time.monotonic() + 5
        while not coordinator.abandoned:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_numbers_are_the_lowest_that_nobody_has() -> None:
    numbers = Numbers()
    assert [numbers.next(0.0, [0, 5], ["node-0", "node-2", "mine"]) for _ in range(3)] == [1, 3, 4]
    assert numbers.next(0.0, [0, 5], ["node-2"]) == 6
    assert numbers.next(1000.0, [0], ["node-0"]) == 1  # those who asked and never came
