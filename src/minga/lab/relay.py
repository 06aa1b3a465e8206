"""Delays, shuffles in time and loses packets in user space, for kernels that can't do it themselves (no netem).

    Relay([Direction(read=host, write=switch, delay=0.02), Direction(read=switch, write=host)]).run(control)

A cable is two TAP interfaces, one at each end; what is read from one is written to the other when its time has come.
The rates stay with the kernel: it limits what leaves through each of the two. Packets stay in order.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from minga.lab import channel

__all__ = ["Direction", "Relay"]

_FRAME_BYTES = 1 << 17
# Read at most this many frames from one interface before looking at the others.
_FRAMES_AT_ONCE = 32


@dataclass
class Direction:
    """One way through a cable."""

    read: int
    write: int
    delay: float = 0.0
    jitter: float = 0.0
    loss: float = 0.0
    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)

    def take(self, frame: bytes, now: float, dice: random.Random) -> None:
        """A frame has been read: lose it, or keep it until its time."""
        if self.loss and dice.random() < self.loss:
            return
        due = now + self.delay
        if self.jitter:
            due += dice.uniform(-self.jitter, self.jitter)
        if self.waiting:
            due = max(due, self.waiting[-1][0])
        self.waiting.append((due, frame))

    def release(self, now: float) -> None:
        """Write what is due. A frame that the other end has no room for is lost, as on a cable."""
        waiting = self.waiting
        while waiting and waiting[0][0] <= now:
            with contextlib.suppress(BlockingIOError, OSError):
                os.write(self.write, waiting.popleft()[1])


class Relay:
    """All delayed cables of a lab, in one loop."""

    def __init__(self, directions: Sequence[Direction], seed: int = 0) -> None:
        self.directions = list(directions)
        self._dice = random.Random(seed)

    def run(self, control: socket.socket) -> None:
        """Until `control` closes; a message on it has the number of a direction and its new values."""
        # select and not epoll: its timeouts are finer than a millisecond.
        by_descriptor = {direction.read: direction for direction in self.directions}
        watched = [control.fileno(), *by_descriptor]
        while True:
            now = time.monotonic()
            due = min((each.waiting[0][0] for each in self.directions if each.waiting), default=now + 60)
            ready, _, _ = select.select(watched, [], [], max(0.0, due - now))
            for descriptor in ready:
                if descriptor in by_descriptor:
                    self._read(by_descriptor[descriptor])
                elif not self._obey(control):
                    return
            now = time.monotonic()
            for direction in self.directions:
                direction.release(now)

    def _read(self, direction: Direction) -> None:
        for _ in range(_FRAMES_AT_ONCE):
            try:
                frame = os.read(direction.read, _FRAME_BYTES)
            except OSError:  # nothing more for now, or the interface is down
                return
            direction.take(frame, time.monotonic(), self._dice)

    def _obey(self, control: socket.socket) -> bool:
        try:
            order, _ = channel.receive(control)
        except ConnectionError:
            return False
        direction = self.directions[order.pop("direction")]
        for name, value in order.items():
            setattr(direction, name, value)
        return True
