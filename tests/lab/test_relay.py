"""Delay, order, jitter and loss in user space; sockets stand in for the interfaces, which are descriptors too."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from minga.lab.relay import Direction, Relay


class Wire:
    """A relay in a thread, with one direction."""

    def __init__(self, **values: float) -> None:
        self.near, read = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        write, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.far.settimeout(5)
        self._theirs = [read, write, theirs]
        for end in (read, write):
            end.setblocking(False)
        self._relay = Relay([Direction(read.fileno(), write.fileno(), **values)], seed=1)
        self._thread = threading.Thread(target=self._relay.run, args=(theirs,))
        self._thread.start()

    def close(self) -> None:
        self.control.close()
        self._thread.join(5)
        for end in (self.near, self.far, *self._theirs):
            end.close()


@contextmanager
def wire(**values: float) -> Iterator[Wire]:
    made = Wire(**values)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("delay", [0.0, 0.02, 0.1])
def test_a_frame_arrives_after_the_delay_and_not_before(delay: float) -> None:
    with wire(delay=delay) as made:
        trips = []
        for _ in range(9):
            began = time.perf_counter()
            made.near.send(b"frame")
            assert made.far.recv(100) == b"frame"
            trips.append(time.perf_counter() - began)
        assert min(trips) >= delay
        assert sorted(trips)[4] < delay + 0.005


def test_delay_does_not_limit_the_rate() -> None:
    with wire(delay=0.05) as made:
        began = time.perf_counter()
        for number in range(50):
            made.near.send(b"%d" % number)
        assert [made.far.recv(100) for _ in range(50)] == [b"%d" % number for number in range(50)]
        assert time.perf_counter() - began < 0.5  # one after the other would take 2.5 s


def test_jitter_keeps_the_order_and_spreads_the_delay() -> None:
    with wire(delay=0.02, jitter=0.02) as made:
        trips = []
        for number in range(40):
            began = time.perf_counter()
            made.near.send(b"%d" % number)
            assert made.far.recv(100) == b"%d" % number
            trips.append(time.perf_counter() - began)
        assert min(trips) < 0.012
        assert max(trips) > 0.028
        for number in range(100):
            made.near.send(b"%d" % number)
        assert [made.far.recv(100) for _ in range(100)] == [b"%d" % number for number in range(100)]


def test_loss_loses_that_part() -> None:
    with wire(loss=0.3) as made:
        arrived = 0
        made.far.settimeout(0.2)
        for _ in range(40):
            for number in range(25):
                made.near.send(b"%d" % number)
            try:
                while True:
                    made.far.recv(100)
                    arrived += 1
                    made.far.settimeout(0.02)
            except TimeoutError:
                made.far.settimeout(0.2)
        assert 0.6 < arrived / 1000 < 0.8


def test_values_change_while_it_runs() -> None:
    with wire(delay=0.0) as made:
        made.control.send(json.dumps({"direction": 0, "delay": 0.1}).encode())
        time.sleep(0.05)
        began = time.perf_counter()
        made.near.send(b"frame")
        made.far.recv(100)
        assert time.perf_counter() - began >= 0.1


def test_a_frame_that_finds_no_room_is_lost_and_nothing_stops() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    direction = Direction(read=-1, write=write)
    try:
        for _ in range(10_000):
            direction.take(bytes(1000), now=0.0, dice=None)  # type: ignore[arg-type]  # nothing is random here
        direction.release(now=1.0)
        assert not direction.waiting
    finally:
        os.close(read)
        os.close(write)
