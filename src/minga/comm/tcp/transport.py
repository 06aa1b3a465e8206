"""Messages between the members of one generation, over TCP connections that can be given up at any moment.

    comm = TcpTransport(generation, rank, door)
    comm.abort("node-2 is gone")  # from any thread: every wait in it, now and later, raises PeerLost

Connections are made in the background; what is sent before they are there waits. When a member's process ends, whoever
waits for it is told at once. In the next generation a new transport is made, in the same process, with the same door.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from torch import Tensor

from minga.comm.background import BackgroundThread
from minga.comm.collectives.ring import ring
from minga.comm.tcp.attendant import IOThread
from minga.comm.tcp.channel import Channel
from minga.comm.tcp.door import DataListener
from minga.comm.tcp.greeting import Dropped, Hello
from minga.comm.tcp.line import Line
from minga.comm.tcp.operation import bytes_of
from minga.comm.transport import Done, Pending, Transport
from minga.errors import PeerLost, PeerTimeout
from minga.membership.generation import Generation

__all__ = ["TcpTransport"]

# Messages of the caller, of jobs beside it, and what each of them gathers from everybody.
_MAIN, _BESIDE = 0, 1
_GATHERING = {_MAIN: 2, _BESIDE: 3}
# Messages of the transport's own all-reduce live above this tag, so that they never meet the caller's.
_ALL_REDUCE = 1 << 40
# How long closing waits for what is still on its way, and for ranks that have not connected yet.
_CLOSING_SECONDS = 2.0


class TcpTransport(Transport):
    """One member of a generation."""

    def __init__(
        self,
        generation: Generation,
        rank: int,
        door: DataListener,
        timeout_seconds: float = 120.0,
        *,
        connect_at_once: bool = True,
    ) -> None:
        """Returns at once. `connect_at_once=False`: ranks connect only with those they have something to say to."""
        self.rank = rank
        self.size = len(generation.members)
        self.hosts = [member.host for member in generation.members]
        self._core = _Core(generation, rank, door, timeout_seconds, complete=connect_at_once)
        self._channel = _MAIN
        self._offset = 0

    def beside(self) -> TcpTransport:
        """The same rank with messages of its own, as a job gets it that `start` runs."""
        return self._view(_BESIDE, self._offset)

    def _view(self, channel: int, offset: int) -> TcpTransport:
        other = object.__new__(TcpTransport)
        other.__dict__.update(self.__dict__)
        other._channel, other._offset = channel, offset
        return other

    def isend(self, tensor: Tensor, to: int, tag: int = 0) -> Pending:
        return self._core.channels[self._channel].isend(bytes_of(tensor), to, tag + self._offset)

    def ireceive(self, tensor: Tensor, source: int | None, tag: int = 0) -> Pending:
        return self._core.channels[self._channel].ireceive(bytes_of(tensor), source, tag + self._offset)

    def now(self) -> float:
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        if self._core.over.wait(seconds):
            raise PeerLost(self._core.reason)

    def start(self, function: Callable[[Transport], None]) -> Pending:
        background = self.beside()
        return self._core.background.submit(lambda: function(background))

    def all_reduce(self, tensor: Tensor, ranks: Sequence[int] | None = None) -> Pending:
        over = self._view(self._channel, self._offset + _ALL_REDUCE)
        ring(over if ranks is None else over.group(ranks), tensor)
        return Done(self.rank)

    def all_gather(self, buffers: Sequence[Tensor], ranks: Sequence[int] | None = None) -> None:
        # Everybody is in the same call, so nobody has to ask for permission: half a round trip less.
        Transport.all_gather(self._view(_GATHERING[self._channel], 0), buffers, ranks)

    def awaited(self, seconds: float) -> list[int]:
        """The ranks that this one has waited for so long, without a byte from them."""
        return sorted({rank for channel in self._core.channels for rank in channel.awaited(seconds)})

    def not_connected_within(self, seconds: float) -> list[int]:
        """The ranks that are not connected so much later, nor known to be gone; at once if there are none."""
        return self._core.channels[_MAIN].wait_until_settled(time.monotonic() + seconds)

    def wait_until_connected(self) -> None:
        """Until every other member is connected; raises `PeerLost` or `PeerTimeout` otherwise."""
        self._core.wait_until_connected()

    def abort(self, reason: str) -> None:
        """Give up, from any thread, any number of times (the first reason stays): every wait raises `PeerLost`.

        Nothing is written into anybody's tensors after a wait for them has raised.
        """
        self._core.abort(reason)

    @property
    def aborted(self) -> str | None:
        """Why this transport was given up, if it was."""
        return self._core.reason or None

    def close(self) -> None:
        self._core.close()


class _Core:
    """What all views of one transport share."""

    def __init__(
        self, generation: Generation, rank: int, door: DataListener, seconds: float, *, complete: bool
    ) -> None:
        self._generation = generation
        self._rank = rank
        self._door = door
        self._seconds = seconds
        self._complete = complete
        self.reason = ""
        self.over = threading.Event()
        self._closed = False
        self.background = BackgroundThread(rank, seconds * 2)
        self._attendant = IOThread(generation, rank, door.tls, seconds)
        gatherings = _GATHERING.values()
        self.channels = [
            Channel(number, rank, len(generation.members), self._attendant, seconds, asked=number in gatherings)
            for number in (_MAIN, _BESIDE, *gatherings)
        ]
        for channel in self.channels:
            self._attendant.add(channel)
        door.expect(generation.number, rank, bytes.fromhex(generation.secret), self._accept)
        if complete:
            self.channels[_MAIN].want_all()

    def _accept(self, hello: Hello, line: Line, first: bytes) -> None:
        if not self._rank < hello.caller < len(self._generation.members) or hello.channel >= len(self.channels):
            raise Dropped.unwanted(f"rank {self._rank} expects no call from rank {hello.caller}")
        channel = self.channels[hello.channel]
        if not channel.attach(hello.caller, line, first):
            raise Dropped.unwanted(f"rank {hello.caller} is connected already")
        self._attendant.attached(channel, hello.caller)

    def wait_until_connected(self) -> None:
        missing = self.channels[_MAIN].wait_until_settled(time.monotonic() + self._seconds)
        if self.reason:
            raise PeerLost(self.reason)
        lost = self.channels[_MAIN].lost()
        if lost is not None:
            raise lost
        if missing:
            raise PeerTimeout(
                f"rank {self._rank}: rank {', '.join(map(str, missing))} did not connect within {self._seconds:g} s",
                rank=missing[0],
            )

    def abort(self, reason: str) -> None:
        # Takes no locks: also a thread that is in the middle of something here may call it, as a signal's handler does.
        if not self.reason:
            self.reason = reason
            for channel in self.channels:
                channel.abort(reason)
            self._attendant.do(self._spread_abort)

    def _spread_abort(self) -> None:
        self.over.set()
        for channel in self.channels:
            channel.wake_all()
        self.background.abort(PeerLost(self.reason))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        deadline = time.monotonic() + min(self._seconds, _CLOSING_SECONDS)
        if self.reason:  # another thread may be in the middle of `abort`, and have come to the first channel only
            for channel in self.channels:
                channel.abort(self.reason)
        if self._complete and not self.reason:
            # Without this, a rank with nothing to say could leave while others still connect.
            self.channels[_MAIN].wait_until_settled(deadline)
        self.background.close()
        self._door.forget(self._generation.number, self._rank)
        for channel in reversed(self.channels):
            channel.close(deadline)
        self._attendant.close()
