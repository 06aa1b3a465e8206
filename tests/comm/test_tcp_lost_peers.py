"""Who is killed is noticed at once; who leaves is no alarm; who stops is missed at the deadline."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

import pytest
import torch
from tcp_members import beside_child, members, seconds_to_fail

from minga.comm.tcp import TcpTransport
from minga.comm.transport import Transport
from minga.errors import PeerLost, PeerTimeout

LONG = 1_000_000


def nothing(comm: TcpTransport) -> None:
    pass


def in_a_job(comm: TcpTransport) -> None:
    def body(background: Transport) -> None:
        background.receive(torch.empty(1), 1)

    comm.start(body).wait()


WAITS: dict[str, Callable[[TcpTransport], object]] = {
    "receive": lambda comm: comm.receive(torch.empty(10), 1),
    "receive from anybody": lambda comm: comm.receive(torch.empty(10), None),
    "send": lambda comm: comm.send(torch.empty(LONG), 1),
    "gather": lambda comm: comm.all_gather([torch.zeros(LONG), torch.zeros(LONG)]),
    "job, where the two have never talked": in_a_job,
}


@pytest.mark.chaos
@pytest.mark.parametrize("wait", WAITS)
def test_a_killed_process_is_noticed_by_whoever_waits_for_it(wait: str) -> None:
    with beside_child(nothing) as (comm, child):
        killed: list[float] = []

        def kill() -> None:
            time.sleep(0.1)
            killed.append(time.monotonic())
            os.kill(child, signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        ended = seconds_to_fail(lambda: WAITS[wait](comm), r"connection to rank 1 is gone")
        thread.join()
        assert 0 < ended - killed[0] < 0.5


@pytest.mark.chaos
def test_a_killed_process_is_noticed_while_nobody_waits() -> None:
    with beside_child(nothing) as (comm, child):
        os.kill(child, signal.SIGKILL)
        time.sleep(0.4)
        began = time.monotonic()
        for wait in WAITS.values():
            seconds_to_fail(lambda wait=wait: wait(comm), "rank 1")  # type: ignore[misc]
        assert time.monotonic() - began < 0.1


@pytest.mark.chaos
def test_a_process_that_is_killed_in_the_middle_of_a_message_is_noticed() -> None:
    def sends_for_ever(comm: TcpTransport) -> None:
        while True:
            comm.send(torch.zeros(10 * LONG), 0)

    with beside_child(sends_for_ever) as (comm, child):
        threading.Timer(0.2, lambda: os.kill(child, signal.SIGKILL)).start()
        value = torch.zeros(10 * LONG)
        began = time.monotonic()

        def receive_for_ever() -> None:
            while True:
                comm.receive(value, 1)

        assert seconds_to_fail(receive_for_ever, "rank 1") - began < 1.0


@pytest.mark.chaos
def test_a_process_that_is_stopped_is_missed_at_the_deadline() -> None:
    with beside_child(nothing, timeout_seconds=0.5) as (comm, child):
        os.kill(child, signal.SIGSTOP)
        with pytest.raises(PeerTimeout, match="rank 1"):
            comm.receive(torch.empty(1), 1)


def test_messages_that_arrived_before_the_end_can_still_be_received() -> None:
    with members() as (zero, one):
        one.send(torch.tensor([5.0]), 0)
        one.send(torch.tensor([6.0]), 0, tag=1)
        one.close()
        time.sleep(0.05)
        value = torch.empty(1)
        zero.receive(value, 1, tag=1)
        assert float(value) == 6.0
        zero.receive(value, 1)
        assert float(value) == 5.0
        with pytest.raises(PeerLost, match="rank 1 has left"):
            zero.receive(value, 1)


def test_who_says_goodbye_does_not_alarm_those_who_wait_for_anybody() -> None:
    with members(3) as (zero, one, two):
        value = torch.empty(1)
        arrival = zero.ireceive(value, None)
        one.close()
        time.sleep(0.05)
        two.send(torch.tensor([2.0]), 0)
        assert arrival.wait() == 2
        two.close()
        with pytest.raises(PeerLost, match="left"):
            zero.receive(value, None)


def test_who_breaks_off_alarms_those_who_wait_for_anybody() -> None:
    with members(3) as (zero, one, _):
        arrival = zero.ireceive(torch.empty(1), None)
        one.abort("it breaks")
        one.close()
        with pytest.raises(PeerLost, match="connection to rank 1 is gone"):
            arrival.wait()


def test_messages_with_others_go_on_when_one_is_gone() -> None:
    with members(3) as (zero, one, two):
        one.abort("it breaks")
        one.close()
        value = torch.empty(LONG)
        arrival = zero.ireceive(value, 2)
        two.send(torch.ones(LONG), 0)
        assert arrival.wait() == 2


def test_nothing_that_was_sent_is_lost_when_the_sender_closes_at_once() -> None:
    with members() as (zero, one):
        one.isend(torch.zeros(1), 0, tag=9).wait()
        zero.isend(torch.zeros(1), 1, tag=8).wait()  # never read: closing with that would cut off what was sent
        gathered = [torch.zeros(3 * LONG), torch.zeros(3 * LONG)]

        def receive() -> None:
            zero.all_gather(gathered)

        thread = threading.Thread(target=receive)
        thread.start()
        one.all_gather([torch.empty(3 * LONG), torch.ones(3 * LONG)])
        one.close()
        thread.join(10)
        assert float(gathered[1].min()) == 1.0
