"""The one thread of a transport: it calls other ranks, notices who is gone, and goes on with what nobody waits for.

It sleeps as long as ranks wait themselves for what they exchange, which is nearly always.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from minga.comm.tcp.bell import Waker
from minga.comm.tcp.channel import Channel
from minga.comm.tcp.greeting import Dropped, Secret, greet
from minga.comm.tcp.line import READ, WRITE, Line, Steps, Tls
from minga.errors import PeerLost, PeerTimeout
from minga.membership.generation import Generation

__all__ = ["IOThread"]

_log = logging.getLogger("minga.comm.tcp")

# A door that hangs up may have too many visitors: call again, at first soon.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5


@dataclass
class _Call:
    """An attempt to reach a rank, and those after it."""

    channel: Channel
    rank: int
    deadline: float
    pause: float = _FIRST_PAUSE
    line: Line | None = None
    steps: Steps[None] | None = None
    wanted: int = 0
    again: float = field(default=0.0)
    """When to call again, if there is no line."""


class IOThread:
    """Looks after the channels of one rank."""

    def __init__(self, generation: Generation, rank: int, tls: Tls | None, seconds: float) -> None:
        self._generation = generation
        self._rank = rank
        self._tls = tls
        self._seconds = seconds
        self._secret: Secret = bytes.fromhex(generation.secret)
        self._channels: dict[int, Channel] = {}
        self._calls: dict[int, _Call] = {}
        """Calls under way, by descriptor."""
        self._pausing: list[_Call] = []
        self._endings: dict[int, tuple[Channel, int]] = {}
        """Lines whose end is to be noticed even if nobody waits for their rank."""
        self._tasks: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._closed = False
        self._poller = select.epoll()
        self._bell = Waker()
        self._poller.register(self._bell.descriptor, READ)
        self._thread = threading.Thread(target=self._run, name=f"minga-tcp-{rank}", daemon=True)
        self._thread.start()

    def add(self, channel: Channel) -> None:
        self._channels[channel.descriptor] = channel
        self._poller.register(channel.descriptor, 0)

    def watch(self, channel: Channel) -> None:
        with contextlib.suppress(OSError, ValueError):  # closed meanwhile
            self._poller.modify(channel.descriptor, READ)

    def unwatch(self, channel: Channel) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._poller.modify(channel.descriptor, 0)

    def wanted(self, channel: Channel, rank: int) -> None:
        """Of two ranks the higher one calls."""
        if rank < self._rank:
            call = _Call(channel, rank, time.monotonic() + self._seconds)
            self.do(lambda: self._begin(call))

    def gone(self, channel: Channel, rank: int, error: PeerLost, alarming: bool) -> None:
        """Where `rank` has not connected yet, it never will."""
        if channel.number == 0:
            self.do(lambda: self._lose_everywhere(rank, error, alarming=alarming))

    def _lose_everywhere(self, rank: int, error: PeerLost, *, alarming: bool) -> None:
        for channel in list(self._channels.values()):
            channel.lose(rank, error, alarming=alarming)

    def attached(self, channel: Channel, rank: int) -> None:
        """The main connection to a rank tells when its process ends."""
        if channel.number == 0:
            self.do(lambda: self._notice_end(channel, rank))

    def do(self, task: Callable[[], object]) -> None:
        """Run something in this thread."""
        self._tasks.put(task)
        self._bell.ring()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._bell.ring()
            if threading.current_thread() is not self._thread:
                self._thread.join(timeout=5)

    def _run(self) -> None:
        try:
            while not self._closed:
                for descriptor, _ in self._poller.poll(self._until_next()):
                    self._serve(descriptor)
                self._look_at_the_clock()
        finally:
            for call in self._calls.values():
                if call.line is not None:
                    call.line.close()
            self._poller.close()

    def _serve(self, descriptor: int) -> None:
        if descriptor == self._bell.descriptor:
            self._bell.silence()
            while not self._tasks.empty():
                self._tasks.get()()
        elif descriptor in self._channels:
            self._channels[descriptor].attend()
        elif descriptor in self._calls:
            self._go_on(self._calls[descriptor])
        elif descriptor in self._endings:
            channel, rank = self._endings.pop(descriptor)
            channel.look_at(rank)

    def _notice_end(self, channel: Channel, rank: int) -> None:
        descriptor = channel.descriptor_of(rank)
        if descriptor is not None:
            self._endings[descriptor] = (channel, rank)
            with contextlib.suppress(OSError):
                self._poller.register(descriptor, select.EPOLLRDHUP | select.EPOLLONESHOT)

    # Calling

    def _until_next(self) -> float:
        times = [call.deadline for call in self._calls.values()] + [call.again for call in self._pausing]
        return max(0.0, min(times) - time.monotonic()) if times else -1

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        for call in [each for each in self._calls.values() if each.deadline <= now]:
            self._give_up(call, PeerTimeout, f"did not answer within {self._seconds:g} s")
        due = [call for call in self._pausing if call.again <= now]
        self._pausing = [call for call in self._pausing if call.again > now]
        for call in due:
            self._begin(call)

    def _begin(self, call: _Call) -> None:
        member = self._generation.members[call.rank]
        try:
            family, kind, _, _, address = socket.getaddrinfo(member.address, member.port, type=socket.SOCK_STREAM)[0]
            connection = socket.socket(family, kind)
            call.line = Line(connection)
            call.steps = self._steps(call, call.line, connection, address)
            call.wanted = WRITE
            self._calls[call.line.descriptor] = call
            self._poller.register(call.line.descriptor, 0)
            self._go_on(call, first=True)
        except OSError as error:
            self._give_up(call, PeerLost, f"can't be reached at {member.address}: {error.strerror or error}")

    def _steps(self, call: _Call, line: Line, connection: socket.socket, address: object) -> Steps[None]:
        try:
            connection.connect(address)  # type: ignore[arg-type]
        except BlockingIOError:
            yield WRITE
        failure = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failure:
            raise OSError(failure, os.strerror(failure))
        if self._tls is not None:
            yield from line.encrypt(self._tls, server_name=self._generation.members[call.rank].address)
        yield from greet(
            line,
            self._secret,
            generation=self._generation.number,
            caller=self._rank,
            called=call.rank,
            channel=call.channel.number,
        )

    def _go_on(self, call: _Call, *, first: bool = False) -> None:
        assert call.line is not None and call.steps is not None
        try:
            wanted = next(call.steps)
            if first or wanted != call.wanted:
                call.wanted = wanted
                self._poller.modify(call.line.descriptor, wanted)
        except StopIteration:
            self._connected(call, call.line)
        except Dropped as error:
            if error.final:
                self._give_up(call, PeerLost, f"would not talk: {error}")
            else:
                self._call_again(call)
        except ConnectionResetError:
            self._call_again(call)
        except OSError as error:  # nobody listens there any more, or the certificates don't fit
            self._give_up(call, PeerLost, f"can't be reached: {error.strerror or error}")

    def _connected(self, call: _Call, line: Line) -> None:
        self._poller.unregister(line.descriptor)
        del self._calls[line.descriptor]
        if call.channel.attach(call.rank, line):
            self.attached(call.channel, call.rank)
        else:
            line.close()

    def _hang_up(self, call: _Call) -> None:
        if call.line is not None:
            self._calls.pop(call.line.descriptor, None)
            call.line.close()
            call.line = None

    def _call_again(self, call: _Call) -> None:
        self._hang_up(call)
        call.again = time.monotonic() + call.pause
        call.pause = min(_LONGEST_PAUSE, 2 * call.pause)
        self._pausing.append(call)

    def _give_up(self, call: _Call, kind: type[PeerLost], why: str) -> None:
        self._hang_up(call)
        _log.warning("rank %d: rank %d %s", self._rank, call.rank, why)
        call.channel.lose(call.rank, kind(f"rank {self._rank}: rank {call.rank} {why}"), alarming=True)
