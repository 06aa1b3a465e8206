"""Messages between the members of one generation, over TCP connections that can be given up at any moment.

    comm = TcpTransport(generation, rank, listener)
    comm.abort("node-2 is gone")  # from any thread: every wait in it, now and later, raises PeerLost

Connections are made in the background; what is sent before they are there waits. When a member's process ends, whoever
waits for it gets `PeerLost` at once. The next generation has a new transport, in the same process, with the same
listener.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from torch import Tensor

from minga.comm.background import BackgroundThread
from minga.comm.collectives.ring import ring
from minga.comm.tcp.endpoint import Endpoint
from minga.comm.tcp.io_thread import IOThread
from minga.comm.tcp.listener import Claim, DataListener
from minga.comm.tcp.operation import bytes_of
from minga.comm.transport import Done, Pending, Transport
from minga.errors import PeerLost, PeerTimeout, Refused
from minga.net.generation import Generation
from minga.net.sockets import Socket

__all__ = ["TcpTransport"]

# Two endpoints: messages of the caller, and of jobs beside it.
_CALLER, _BESIDE = 0, 1
# Messages of the transport's own collectives live above these tags, so that they never meet the caller's.
_ALL_REDUCE, _ALL_GATHER = 1 << 40, 1 << 41
# How long closing waits for what is still on its way, and for ranks that have not connected yet.
_CLOSING_SECONDS = 2.0


class TcpTransport(Transport):
    """One member of a generation."""

    def __init__(
        self,
        generation: Generation,
        rank: int,
        listener: DataListener,
        timeout_seconds: float = 120.0,
        *,
        connect_at_once: bool = True,
    ) -> None:
        """Returns at once. `connect_at_once=False`: ranks connect only with those they have something to say to."""
        self.rank = rank
        self.size = len(generation.members)
        self.hosts = [member.host for member in generation.members]
        self._core = _Core(generation, rank, listener, timeout_seconds, complete=connect_at_once)
        self._endpoint = self._core.endpoints[_CALLER]
        self._offset = 0
        self._expected = False

    def beside(self) -> TcpTransport:
        """The same rank with messages of its own, as a job gets it that `start` runs."""
        return self._view(endpoint=self._core.endpoints[_BESIDE])

    def _view(self, *, endpoint: Endpoint | None = None, offset: int = 0, expected: bool = False) -> TcpTransport:
        other = object.__new__(TcpTransport)
        other.__dict__.update(self.__dict__)
        other._endpoint, other._expected = endpoint or self._endpoint, expected
        other._offset = self._offset + offset
        return other

    def isend(self, tensor: Tensor, to: int, tag: int = 0) -> Pending:
        return self._endpoint.isend(bytes_of(tensor), to, tag + self._offset, expected=self._expected)

    def ireceive(self, tensor: Tensor, source: int | None, tag: int = 0) -> Pending:
        return self._endpoint.ireceive(bytes_of(tensor), source, tag + self._offset, expected=self._expected)

    def now(self) -> float:
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        if self._core.over.wait(seconds):
            raise PeerLost(self._core.reason)

    def start(self, function: Callable[[Transport], None]) -> Pending:
        background = self.beside()
        return self._core.background.submit(lambda: function(background))

    def all_reduce(self, tensor: Tensor, ranks: Sequence[int] | None = None) -> Pending:
        over = self._view(offset=_ALL_REDUCE)
        ring(over if ranks is None else over.group(ranks), tensor)
        return Done(self.rank)

    def all_gather(self, buffers: Sequence[Tensor], ranks: Sequence[int] | None = None) -> None:
        Transport.all_gather(self._view(offset=_ALL_GATHER, expected=True), buffers, ranks)

    def awaited(self, seconds: float) -> list[int]:
        """The ranks that this one has waited for so long, without a byte from them."""
        return sorted({rank for endpoint in self._core.endpoints for rank in endpoint.awaited(seconds)})

    def not_connected_within(self, seconds: float) -> list[int]:
        """The ranks that are not connected so much later, nor known to be gone; at once if there are none."""
        return self._core.endpoints[_CALLER].wait_until_settled(time.monotonic() + seconds)

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
        self, generation: Generation, rank: int, listener: DataListener, seconds: float, *, complete: bool
    ) -> None:
        self._generation = generation
        self._rank = rank
        self._listener = listener
        self._seconds = seconds
        self._complete = complete
        self.reason = ""
        self.over = threading.Event()
        self._closed = False
        self.background = BackgroundThread(rank, seconds * 2)
        self._io = IOThread(generation, rank, listener.tls, seconds)
        size = len(generation.members)
        self.endpoints = [Endpoint(number, rank, size, self._io, seconds) for number in (_CALLER, _BESIDE)]
        for endpoint in self.endpoints:
            self._io.add(endpoint)
        listener.expect(generation.number, rank, bytes.fromhex(generation.secret), self._accept)
        if complete:
            self.endpoints[_CALLER].want_all()

    def _accept(self, claim: Claim, socket: Socket, first: bytes) -> None:
        if not self._rank < claim.caller < len(self._generation.members) or claim.endpoint >= len(self.endpoints):
            raise Refused(f"rank {self._rank} expects no such connection from rank {claim.caller}")
        endpoint = self.endpoints[claim.endpoint]
        if not endpoint.attach(claim.caller, socket, first):
            raise Refused(f"rank {self._rank} expects no such connection: rank {claim.caller} is connected already")
        self._io.attached(endpoint, claim.caller)

    def wait_until_connected(self) -> None:
        missing = self.endpoints[_CALLER].wait_until_settled(time.monotonic() + self._seconds)
        if self.reason:
            raise PeerLost(self.reason)
        lost = self.endpoints[_CALLER].lost()
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
            for endpoint in self.endpoints:
                endpoint.abort(reason)
            self._io.do(self._spread_abort)

    def _spread_abort(self) -> None:
        self.over.set()
        for endpoint in self.endpoints:
            endpoint.wake_all()
        self.background.abort(PeerLost(self.reason))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        deadline = time.monotonic() + min(self._seconds, _CLOSING_SECONDS)
        if self.reason:  # another thread may be in the middle of `abort`, and have come to the first endpoint only
            for endpoint in self.endpoints:
                endpoint.abort(self.reason)
        if self._complete and not self.reason:
            # Without this, a rank with nothing to say could leave while others still connect.
            self.endpoints[_CALLER].wait_until_settled(deadline)
        self.background.close()
        self._listener.forget(self._generation.number, self._rank)
        for endpoint in reversed(self.endpoints):
            endpoint.close(deadline)
        self._io.close()
