"""The one thread of a transport: it calls other ranks, notices who is gone, and goes on with what nobody waits for.

It sleeps as long as ranks wait themselves for what they exchange, which is nearly always.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from minga.comm.tcp.endpoint import Endpoint
from minga.comm.tcp.listener import Claim
from minga.errors import PeerLost, PeerTimeout, ProtocolError, Refused
from minga.net.generation import Generation
from minga.net.greeting import introduce
from minga.net.sockets import READ, WRITE, Socket, Steps, Waker
from minga.net.tls import Tls

__all__ = ["IOThread"]

_log = logging.getLogger("minga.comm.tcp")

# A listener that hangs up may have too many visitors: call again, at first soon.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5


@dataclass
class _Call:
    """An attempt to reach a rank, and those after it."""

    endpoint: Endpoint
    rank: int
    deadline: float
    pause: float = _FIRST_PAUSE
    socket: Socket | None = None
    steps: Steps[None] | None = None
    wanted: int = 0
    again: float = 0.0
    """When to call again, if there is no socket."""


class IOThread:
    """Looks after the endpoints of one rank."""

    def __init__(self, generation: Generation, rank: int, tls: Tls | None, seconds: float) -> None:
        self._generation = generation
        self._rank = rank
        self._tls = tls
        self._seconds = seconds
        self._endpoints: dict[int, Endpoint] = {}
        self._calls: dict[int, _Call] = {}
        """Calls under way, by descriptor."""
        self._pausing: list[_Call] = []
        self._endings: dict[int, tuple[Endpoint, int]] = {}
        """Connections whose end is to be noticed even if nobody waits for their rank."""
        self._tasks: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._closed = False
        self._poller = select.epoll()
        self._waker = Waker()
        self._poller.register(self._waker.descriptor, READ)
        self._thread = threading.Thread(target=self._run, name=f"minga-tcp-{rank}", daemon=True)
        self._thread.start()

    def add(self, endpoint: Endpoint) -> None:
        self._endpoints[endpoint.descriptor] = endpoint
        self._poller.register(endpoint.descriptor, 0)

    def watch(self, endpoint: Endpoint, wanted: bool) -> None:
        """Go on with what happens in an endpoint while nobody waits there, or leave that to who does."""
        with contextlib.suppress(OSError, ValueError):  # closed meanwhile
            self._poller.modify(endpoint.descriptor, READ if wanted else 0)

    def call(self, endpoint: Endpoint, rank: int) -> None:
        """Somebody wants to talk to `rank`. Of two ranks the higher one calls."""
        if rank < self._rank:
            call = _Call(endpoint, rank, time.monotonic() + self._seconds)
            self.do(lambda: self._begin(call))

    def gone(self, endpoint: Endpoint, rank: int, error: PeerLost, alarming: bool) -> None:
        """The connection to `rank` has ended: where it has not connected yet, it never will."""
        if endpoint.number == 0:
            self.do(lambda: self._lose_everywhere(rank, error, alarming=alarming))

    def _lose_everywhere(self, rank: int, error: PeerLost, *, alarming: bool) -> None:
        for endpoint in list(self._endpoints.values()):
            endpoint.lose(rank, error, alarming=alarming)

    def attached(self, endpoint: Endpoint, rank: int) -> None:
        """The first connection to a rank shows when its process ends."""
        if endpoint.number == 0:
            self.do(lambda: self._notice_end(endpoint, rank))

    def do(self, task: Callable[[], object]) -> None:
        """Run something in this thread."""
        self._tasks.put(task)
        self._waker.wake()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._waker.wake()
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
                if call.socket is not None:
                    call.socket.close()
            self._poller.close()

    def _serve(self, descriptor: int) -> None:
        if descriptor == self._waker.descriptor:
            self._waker.clear()
            while not self._tasks.empty():
                self._tasks.get()()
        elif descriptor in self._endpoints:
            self._endpoints[descriptor].attend()
        elif descriptor in self._calls:
            self._go_on(self._calls[descriptor])
        elif descriptor in self._endings:
            endpoint, rank = self._endings.pop(descriptor)
            endpoint.look_at(rank)

    def _notice_end(self, endpoint: Endpoint, rank: int) -> None:
        descriptor = endpoint.descriptor_of(rank)
        if descriptor is not None:
            self._endings[descriptor] = (endpoint, rank)
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
            call.socket = Socket(socket.socket(family, kind))
            call.steps = self._steps(call, call.socket, address)
            call.wanted = WRITE
            self._calls[call.socket.descriptor] = call
            self._poller.register(call.socket.descriptor, 0)
            self._go_on(call, first=True)
        except OSError as error:
            self._give_up(call, PeerLost, f"can't be reached at {member.address}: {error.strerror or error}")

    def _steps(self, call: _Call, connection: Socket, address: tuple[object, ...]) -> Steps[None]:
        yield from connection.connect(address)
        if self._tls is not None:
            member = self._generation.members[call.rank]
            yield from connection.encrypt(self._tls.client, server_name=member.address)
        claim = Claim(self._generation.number, self._rank, call.rank, call.endpoint.number)
        yield from introduce(connection, bytes.fromhex(self._generation.secret), claim=claim.pack())

    def _go_on(self, call: _Call, *, first: bool = False) -> None:
        assert call.socket is not None and call.steps is not None
        try:
            wanted = next(call.steps)
            if first or wanted != call.wanted:
                call.wanted = wanted
                self._poller.modify(call.socket.descriptor, wanted)
        except StopIteration:
            self._connected(call, call.socket)
        except (Refused, ProtocolError) as error:
            self._give_up(call, PeerLost, f"would not talk: {error}")
        except ConnectionResetError:
            self._call_again(call)
        except OSError as error:  # nobody listens there any more, or the certificates don't fit
            self._give_up(call, PeerLost, f"can't be reached: {error.strerror or error}")

    def _connected(self, call: _Call, connection: Socket) -> None:
        self._poller.unregister(connection.descriptor)
        del self._calls[connection.descriptor]
        if call.endpoint.attach(call.rank, connection):
            self.attached(call.endpoint, call.rank)
        else:
            connection.close()

    def _hang_up(self, call: _Call) -> None:
        if call.socket is not None:
            self._calls.pop(call.socket.descriptor, None)
            call.socket.close()
            call.socket = None

    def _call_again(self, call: _Call) -> None:
        self._hang_up(call)
        call.again = time.monotonic() + call.pause
        call.pause = min(_LONGEST_PAUSE, 2 * call.pause)
        self._pausing.append(call)

    def _give_up(self, call: _Call, kind: type[PeerLost], why: str) -> None:
        self._hang_up(call)
        _log.warning("rank %d: rank %d %s", self._rank, call.rank, why)
        call.endpoint.lose(call.rank, kind(f"rank {self._rank}: rank {call.rank} {why}"), alarming=True)
