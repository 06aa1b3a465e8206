"""Who is let in to talk to a rank, who is not, and that nobody holds up anybody else there."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator

import psutil
import pytest
import torch
from tcp_members import call_in, members, seconds_to_fail

from minga.comm.tcp import DataListener, TcpTransport
from minga.comm.tcp.listener import Claim
from minga.errors import PeerLost, PortBusy, Refused
from minga.net.generation import Generation
from minga.net.greeting import PROTOCOL, refusal
from minga.testing import generation_of

HEAD_BYTES = 10
OPENING, CHALLENGE, PROOF, REFUSAL = range(1, 5)
OPENING_BYTES, CHALLENGE_BYTES, PROOF_BYTES = HEAD_BYTES + 32 + len(Claim(0, 0, 0, 0).pack()), 42, 42


def opening(claim: Claim) -> bytes:
    content = bytes(32) + claim.pack()
    return b"minga\n" + bytes([PROTOCOL, OPENING]) + len(content).to_bytes(2, "big") + content


def answer(connection: socket.socket) -> tuple[int, bytes]:
    """Kind and content of what a listener says."""
    head = connection.recv(HEAD_BYTES, socket.MSG_WAITALL)
    return head[7], connection.recv(int.from_bytes(head[8:], "big"), socket.MSG_WAITALL)


def alone(listener: DataListener, number: int = 1) -> tuple[Generation, TcpTransport]:
    """Rank 0 of two, whose other one is played by the test."""
    generation = generation_of([listener, listener], number)
    return generation, TcpTransport(generation, 0, listener, timeout_seconds=5.0)


def connect(listener: DataListener) -> socket.socket:
    return socket.create_connection((listener.address, listener.port), timeout=5)


def lines(caplog: pytest.LogCaptureFixture, word: str, least: int = 1) -> list[str]:
    found: list[str] = []
    deadline = time.monotonic() + 2
    while len(found) < least and time.monotonic() < deadline:
        found = [record.getMessage() for record in caplog.records if re.search(word, record.getMessage())]
        time.sleep(0.01)
    assert all(record.name == "minga.net" for record in caplog.records if re.search(word, record.getMessage()))
    return found


@contextlib.contextmanager
def between(listener: DataListener) -> Iterator[tuple[DataListener, list[bytes]]]:
    """Somebody on the way to a listener who writes down what callers say; one call only."""
    said: list[bytes] = []
    pretender = socket.create_server(("127.0.0.1", 0))

    def relay() -> None:
        caller, _ = pretender.accept()
        with caller, connect(listener) as behind:
            caller.settimeout(5)
            for count, from_caller in (
                (OPENING_BYTES, True),
                (CHALLENGE_BYTES, False),
                (PROOF_BYTES, True),
                (PROOF_BYTES, False),
            ):
                source, target = (caller, behind) if from_caller else (behind, caller)
                content = source.recv(count, socket.MSG_WAITALL)
                said.append(content)
                target.sendall(content)

    thread = threading.Thread(target=relay)
    thread.start()
    seen = object.__new__(DataListener)
    seen.address, seen.port = "127.0.0.1", pretender.getsockname()[1]
    yield seen, said
    thread.join(5)
    pretender.close()


def test_it_listens_on_one_address_only() -> None:
    with DataListener() as listener:
        listening = [each.laddr for each in psutil.Process().net_connections("tcp") if each.status == "LISTEN"]
        assert [tuple(address) for address in listening if address.port == listener.port] == [
            ("127.0.0.1", listener.port)
        ]
    with pytest.raises(PortBusy, match=r"192\.0\.2\.1"):
        DataListener("192.0.2.1")


def test_a_wrong_secret_is_refused_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with DataListener() as listener, DataListener() as other:
        right = generation_of([listener, other])
        wrong = dataclasses.replace(right, secret="ab" * 32)
        zero, one = TcpTransport(right, 0, listener), TcpTransport(wrong, 1, other)
        seconds_to_fail(lambda: one.receive(torch.empty(1), 0), "knows another secret")
        assert len(lines(caplog, "^refused .* knows another secret")) == 1
        again = TcpTransport(dataclasses.replace(right), 1, other)  # it is not held against the right one
        departure = again.isend(torch.ones(1), 0)
        zero.receive(torch.empty(1), 1)
        departure.wait()
        for comm in (one, again, zero):
            comm.close()


def test_a_listener_that_does_not_know_the_secret_gets_nothing_sent() -> None:
    """Somebody listens at the port of a member that is gone, and repeats what its listener once said."""
    with DataListener() as listener, DataListener() as other:
        generation, comm = alone(listener)
        with between(listener) as (seen, said):
            call_in(seen, generation).close()
        comm.close()
        pretender = socket.create_server(("127.0.0.1", 0))
        heard: list[bytes] = []

        def repeat() -> None:
            caller, _ = pretender.accept()
            with caller:
                caller.settimeout(5)
                caller.recv(OPENING_BYTES, socket.MSG_WAITALL)
                caller.sendall(said[1])
                caller.recv(PROOF_BYTES, socket.MSG_WAITALL)
                caller.sendall(said[3])
                heard.append(caller.recv(1000))

        thread = threading.Thread(target=repeat)
        thread.start()
        first = dataclasses.replace(generation.members[0], port=pretender.getsockname()[1])
        misled = dataclasses.replace(generation, members=(first, generation.members[1]))
        victim = TcpTransport(misled, 1, other)
        seconds_to_fail(lambda: victim.send(torch.ones(100_000), 0), "could not prove")
        thread.join(5)
        assert heard == [b""]
        victim.close()
        pretender.close()


def test_what_was_said_once_can_not_be_said_again(caplog: pytest.LogCaptureFixture) -> None:
    with DataListener() as listener:
        generation, comm = alone(listener)
        with between(listener) as (seen, said):
            call_in(seen, generation).close()
        for _ in range(2):
            with connect(listener) as replay:
                replay.sendall(said[0])
                assert answer(replay)[0] == CHALLENGE
                replay.sendall(said[2])
                assert answer(replay) == (
                    REFUSAL,
                    refusal("refused: it knows another secret than this generation's")[10:],
                )
                assert replay.recv(1) == b""
        assert len(lines(caplog, "^refused .* knows another secret", 2)) == 2
        comm.close()


def test_a_listener_s_own_proof_does_not_open_it() -> None:
    with DataListener() as listener:
        generation, comm = alone(listener)
        with between(listener) as (seen, said):
            call_in(seen, generation).close()
        with connect(listener) as replay:
            replay.sendall(said[0])
            assert answer(replay)[0] == CHALLENGE
            replay.sendall(said[3])
            assert answer(replay)[0] == REFUSAL
        comm.close()


def test_a_second_connection_of_the_same_rank_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    with members() as (zero, one):
        listener, generation = zero._listener, zero._generation
        with pytest.raises(Refused, match="expects no such connection"):
            call_in(listener, generation)
        with pytest.raises(Refused, match="expects no such connection"):
            call_in(listener, generation, caller=0)
        with pytest.raises(Refused, match="expects no such connection"):
            call_in(listener, generation, endpoint=77)
        assert lines(caplog, "connected already")
        departure = one.isend(torch.ones(1), 0)
        zero.receive(torch.empty(1), 1)
        departure.wait()


def test_who_comes_early_for_a_later_generation_waits_and_the_current_one_goes_on() -> None:
    with DataListener() as first, DataListener() as second:
        now, later = generation_of([first, second], 4), generation_of([first, second], 7)
        zero, one = TcpTransport(now, 0, first), TcpTransport(now, 1, second)
        zero.wait_until_connected()
        early = TcpTransport(later, 1, second)
        departure = early.isend(torch.tensor([7.0]), 0)
        current = zero.isend(torch.tensor([4.0]), 1)
        value = torch.empty(1)
        one.receive(value, 0)
        current.wait()
        assert float(value) == 4.0
        assert not departure.done
        zero.abort("the next one")
        zero.close()
        late = TcpTransport(later, 0, first)
        late.receive(value, 1)
        departure.wait()
        assert float(value) == 7.0
        for comm in (one, early, late):
            comm.close()


def test_an_earlier_generation_is_refused() -> None:
    with DataListener() as first, DataListener() as second:
        old, new = generation_of([first, second], 4), generation_of([first, second], 5)
        zero = TcpTransport(new, 0, first)
        stale = TcpTransport(old, 1, second)
        began = time.monotonic()
        assert seconds_to_fail(lambda: stale.receive(torch.empty(1), 0), "generation is over") - began < 0.5
        one = TcpTransport(new, 1, second)
        one.wait_until_connected()
        for comm in (zero, stale, one):
            comm.close()
        after = TcpTransport(new, 1, second)  # the same number again, after rank 0 has left it
        seconds_to_fail(lambda: after.receive(torch.empty(1), 0), "generation is over")
        after.close()


def test_garbage_is_dropped_with_a_line(caplog: pytest.LogCaptureFixture) -> None:
    with DataListener() as listener:
        for content in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3, b"\xff" * 5000, b"\x16\x03\x01" + bytes(200)):
            with connect(listener) as visitor, contextlib.suppress(ConnectionResetError):
                visitor.sendall(content)
                assert visitor.recv(100) == b""
        assert len(lines(caplog, "this is no greeting of Minga")) >= 1
        assert len(lines(caplog, "it begins with 'GET / HTTP'.* is the port right")) == 1
        assert len(lines(caplog, "looks like TLS")) == 1


def test_a_slow_greeting_is_dropped_after_two_seconds_and_holds_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    with DataListener() as listener:
        generation, comm = alone(listener)
        began = time.monotonic()
        with connect(listener) as slow:
            hello = opening(Claim(1, 1, 0, 0))
            slow.settimeout(0.2)
            slow.sendall(hello[:1])
            call_in(listener, generation).close()
            assert time.monotonic() - began < 0.5
            for number in range(1, 30):
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    slow.sendall(hello[number : number + 1])
                try:
                    assert slow.recv(1) == b""
                    break
                except TimeoutError:
                    pass
                except ConnectionResetError:
                    break
            assert 1.5 < time.monotonic() - began < 3.5
        assert lines(caplog, "no greeting within 2 s")
        comm.close()


def test_a_flood_of_half_open_greetings_holds_up_nobody(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "minga.net")
    with DataListener() as listener, contextlib.ExitStack() as stack:
        generation, comm = alone(listener)
        flood = [stack.enter_context(connect(listener)) for _ in range(200)]
        for visitor in flood[::2]:
            with contextlib.suppress(OSError):
                visitor.sendall(opening(Claim(1, 1, 0, 0))[:8])
        began = time.monotonic()
        call_in(listener, generation).close()
        assert time.monotonic() - began < 1.0
        assert len(listener.listener.unfinished) <= 64
        assert 10 <= len(lines(caplog, "more than 64 unfinished greetings")) <= 60, (
            "a line for some of them, not for each"
        )
        assert sum(thread.name.startswith("minga-listener") for thread in threading.enumerate()) == 1
        deadline = time.monotonic() + 4
        while listener.listener.unfinished and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not listener.listener.unfinished
        comm.close()


def test_a_flood_of_early_ones_can_not_keep_a_generation_from_forming() -> None:
    with DataListener() as first, DataListener() as second, contextlib.ExitStack() as stack:
        for number in range(400):
            visitor = stack.enter_context(connect(first))
            visitor.sendall(opening(Claim(1000 + number, 1, 0, 0)))
        generation = generation_of([first, second], 3)
        zero, one = TcpTransport(generation, 0, first), TcpTransport(generation, 1, second)
        began = time.monotonic()
        zero.wait_until_connected()
        one.wait_until_connected()
        assert time.monotonic() - began < 2.0
        assert len(first.listener.early) <= 256
        assert len(first.listener.unfinished) <= 64
        for comm in (zero, one):
            comm.close()


def test_two_ranks_of_one_process_share_a_listener() -> None:
    with DataListener() as shared, DataListener() as other:
        generation = generation_of([shared, other, shared])
        comms = [TcpTransport(generation, rank, listener) for rank, listener in enumerate((shared, other, shared))]
        for comm in comms:
            comm.wait_until_connected()
        departures = [comm.isend(torch.tensor([float(comm.rank)]), 0) for comm in comms[1:]]
        for rank in (2, 1):
            value = torch.empty(1)
            comms[0].receive(value, rank)
            assert float(value) == rank
        for departure in departures:
            departure.wait()
        for comm in comms:
            comm.close()


def test_a_closed_listener_and_a_closed_transport_leave_nothing_behind() -> None:
    def use_and_close() -> None:
        with members(3) as comms:
            timer = threading.Timer(0.02, lambda: comms[0].abort("over"))
            timer.start()
            with pytest.raises(PeerLost, match="over"):
                comms[0].receive(torch.empty(1), 1)
            timer.join()

    gc.collect()
    before = psutil.Process().num_fds()
    for _ in range(3):
        use_and_close()
    gc.collect()
    assert psutil.Process().num_fds() <= before
