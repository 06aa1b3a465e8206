"""Every wait of a transport that is given up ends at once, whoever waits where."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest
import torch
from tcp_members import beside_child, members, seconds_to_fail

from minga.comm.tcp import DataListener, TcpTransport
from minga.comm.transport import Transport
from minga.errors import PeerLost, PeerTimeout
from minga.net.generation import Generation, MemberInfo
from minga.testing import generation_of

LONG = 1_000_000


def in_a_job(action: Callable[[Transport], object]) -> Callable[[TcpTransport], object]:
    def body(background: Transport) -> None:
        action(background)

    return lambda comm: comm.start(body).wait()


WAITS: dict[str, Callable[[TcpTransport], object]] = {
    "receive": lambda comm: comm.receive(torch.empty(10), 1),
    "receive a long one": lambda comm: comm.receive(torch.empty(LONG), 1),
    "receive from anybody": lambda comm: comm.receive(torch.empty(10), None),
    "send": lambda comm: comm.send(torch.empty(LONG), 1),
    "gather": lambda comm: comm.all_gather([torch.zeros(10), torch.zeros(10)]),
    "reduce": lambda comm: comm.all_reduce(torch.zeros(LONG)).wait(),
    "sleep": lambda comm: comm.sleep(10),
    "job that receives": in_a_job(lambda comm: comm.receive(torch.empty(10), 1)),
    "job that gathers": in_a_job(lambda comm: comm.all_gather([torch.zeros(LONG), torch.zeros(LONG)])),
    "job that computes": in_a_job(lambda comm: time.sleep(0.5)),
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_wait_ends_when_the_transport_is_given_up(wait: str) -> None:
    took = []
    for _ in range(3):  # on a busy machine one may be late
        with members() as (comm, _):
            told: list[float] = []

            def abort(comm: TcpTransport = comm, told: list[float] = told) -> None:
                time.sleep(0.05)
                told.append(time.monotonic())
                comm.abort("node-1 is gone")
                comm.abort("another reason")

            thread = threading.Thread(target=abort)
            thread.start()
            ended = seconds_to_fail(lambda comm=comm: WAITS[wait](comm), "node-1 is gone")  # type: ignore[misc]
            thread.join()
            took.append(ended - told[0])
            assert took[-1] > 0, "it waited"
            again = time.monotonic()
            assert seconds_to_fail(lambda comm=comm: WAITS[wait](comm), "node-1 is gone") - again < 0.05  # type: ignore[misc]
            assert comm.aborted == "node-1 is gone"
        if took[-1] < 0.05:
            return
    raise AssertionError(f"it took {took} s")


def test_several_threads_that_wait_at_one_endpoint_all_hear_of_it() -> None:
    with members() as (comm, _):
        failed: list[float] = []

        def wait(tag: int) -> None:
            failed.append(seconds_to_fail(lambda: comm.receive(torch.empty(1), 1, tag), "gone"))

        threads = [threading.Thread(target=wait, args=(tag,)) for tag in range(5)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        began = time.monotonic()
        comm.abort("gone")
        for thread in threads:
            thread.join(5)
        assert len(failed) == 5
        assert max(failed) - began < 0.25


def test_several_threads_take_turns_in_moving_messages_on() -> None:
    with members() as (zero, one):
        heard: list[tuple[int, float]] = []

        def wait(tag: int) -> None:
            value = torch.empty(1)
            zero.receive(value, 1, tag)
            heard.append((tag, float(value)))

        threads = [threading.Thread(target=wait, args=(tag,)) for tag in range(6)]
        for thread in threads:
            thread.start()
        for tag in (3, 0, 5, 1, 4, 2):
            time.sleep(0.01)
            one.send(torch.tensor([10.0 * tag]), 0, tag)
        for thread in threads:
            thread.join(5)
        assert heard == [(tag, 10.0 * tag) for tag in (3, 0, 5, 1, 4, 2)]


def test_a_signal_handler_may_give_up_what_its_own_thread_waits_for() -> None:
    with members() as (comm, _):
        before = signal.signal(signal.SIGALRM, lambda *_: comm.abort("told by a signal"))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            began = time.monotonic()
            assert seconds_to_fail(lambda: comm.receive(torch.empty(1), 1), "told by a signal") - began < 0.5
        finally:
            signal.signal(signal.SIGALRM, before)


def test_nothing_is_written_after_a_wait_has_raised() -> None:
    with members() as (comm, other):
        value = torch.zeros(LONG)
        arrival = comm.ireceive(value, 1)
        comm.abort("gone")
        with pytest.raises(PeerLost):
            arrival.wait()
        other.isend(torch.ones(LONG), 0)
        time.sleep(0.1)
        assert float(value.max()) == 0.0


def test_giving_up_ends_waiting_for_members_that_do_not_come() -> None:
    with DataListener() as listener, DataListener() as nobody:
        comm = TcpTransport(generation_of([listener, nobody]), 0, listener)
        threading.Timer(0.1, lambda: comm.abort("somebody else is gone")).start()
        began = time.monotonic()
        assert seconds_to_fail(comm.wait_until_connected, "somebody else") - began < 0.5
        comm.close()
        assert time.monotonic() - began < 1.0, "closing waits for nobody then"


def test_a_call_that_nobody_answers_ends_too() -> None:
    with DataListener() as silent, DataListener() as listener:
        generation = generation_of([silent, listener])
        comm = TcpTransport(generation, 1, listener, timeout_seconds=0.3)
        assert seconds_to_fail(lambda: comm.receive(torch.empty(1), 0), "rank 0") > 0
        assert seconds_to_fail(comm.wait_until_connected, "rank 0 did not answer within 0.3 s") > 0
        comm.close()


def test_where_nobody_listens_a_call_fails_at_once() -> None:
    with DataListener() as gone:
        address, port = gone.address, gone.port
    with DataListener() as listener:
        infos = [
            MemberInfo(id=str(each), incarnation="00000000", address=address, port=each)
            for each in (port, listener.port)
        ]
        comm = TcpTransport(Generation(number=1, members=tuple(infos), secret="00" * 32), 1, listener)
        began = time.monotonic()
        assert seconds_to_fail(lambda: comm.receive(torch.empty(1), 0), "rank 0 can't be reached") - began < 0.5
        comm.close()


def test_the_next_generation_is_formed_in_the_same_process_with_the_same_door() -> None:
    with DataListener() as first, DataListener() as second:
        for number in range(1, 8):
            generation = generation_of([first, second], number)
            zero, one = (TcpTransport(generation, rank, listener) for rank, listener in enumerate((first, second)))
            value = torch.zeros(3)
            departure = one.isend(torch.full((3,), float(number)), 0)
            zero.receive(value, 1)
            departure.wait()
            assert value.tolist() == [number] * 3
            for comm in (zero, one):
                comm.abort("the next one")
                comm.close()


def test_a_process_in_the_middle_of_a_long_message_can_be_given_up() -> None:
    def sends_for_ever(comm: TcpTransport) -> None:
        while True:
            comm.send(torch.zeros(20 * LONG), 0)

    with beside_child(sends_for_ever) as (comm, _):
        threading.Timer(0.2, lambda: comm.abort("enough")).start()
        value = torch.zeros(20 * LONG)
        began = time.monotonic()

        def receive_for_ever() -> None:
            while True:
                comm.receive(value, 1)

        assert seconds_to_fail(receive_for_ever, "enough") - began < 0.5


def test_closing_does_not_wait_for_an_abort_that_another_thread_is_in_the_middle_of() -> None:
    def ask_and_stop(comm: TcpTransport) -> None:
        comm.ireceive(torch.empty(20 * LONG), 0)
        os.kill(os.getpid(), signal.SIGSTOP)

    with beside_child(ask_and_stop) as (comm, _):
        pending = comm.isend(torch.zeros(20 * LONG), 1)  # more than the kernel takes: it can't come to its end
        time.sleep(0.5)
        comm._endpoints[0].abort("node-1 is gone")  # the other one has not heard of it yet
        began = time.monotonic()
        comm.close()
        assert time.monotonic() - began < 1
        with pytest.raises(PeerLost):
            pending.wait()


NAMED = {
    name: WAITS[name] for name in ("receive", "receive a long one", "send", "gather", "reduce", "job that receives")
}


@pytest.mark.parametrize("wait", NAMED)
def test_who_was_waited_for_in_vain_is_named(wait: str) -> None:
    with members(timeout_seconds=0.3) as (comm, _):
        assert comm.awaited(0.0) == []
        seen: list[list[int]] = []
        looking = threading.Timer(0.15, lambda: seen.append(comm.awaited(0.1)))
        looking.start()
        with pytest.raises(PeerTimeout) as caught:
            NAMED[wait](comm)
        looking.join()
        assert caught.value.rank == 1
        assert seen == [[1]]
        assert comm.awaited(0.0) == []


@pytest.mark.parametrize("wait", NAMED)
def test_who_has_gone_without_a_word_is_named(wait: str) -> None:
    with members() as (comm, other):
        for endpoint in other._endpoints:  # its process ends
            for link in endpoint.connections.values():
                if link.socket is not None:
                    link.socket.close()
        with pytest.raises(PeerLost) as caught:
            NAMED[wait](comm)
        assert caught.value.rank == 1
