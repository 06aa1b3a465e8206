"""Messages between the members of one generation, over TCP connections that can be given up at any moment.

    comm = TcpTransport(generation, rank, listener)
    comm.abort("node-2 is gone")  # from any thread: every wait in it, now and later, raises PeerLost

Connections are made in the background; what is sent before they are there waits. When a member's process ends, whoever
waits for it gets `PeerLost` at once. The next generation has a new transport, in the same process, with the same
listener.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from minga.comm.background import RealTimeTransport
from minga.comm.collectives.ring import ring
from minga.comm.tcp.endpoint import Endpoint
from minga.comm.tcp.io_thread import IOThread
from minga.comm.tcp.listener import Claim, DataListener
from minga.comm.transport import Done, Pending, Transport
from minga.errors import PeerLost, PeerTimeout, Refused, UnsupportedError
from minga.net.generation import Generation
from minga.net.sockets import Socket

__all__ = ["TcpTransport"]

# Two endpoints: messages of the caller, and of jobs beside it.
_CALLER, _BESIDE = 0, 1
# Messages of the transport's own collectives live above these tags, so that they never meet the caller's.
_ALL_REDUCE, _ALL_GATHER = 1 << 40, 1 << 41
# How long closing waits for what is still on its way, and for ranks that have not connected yet.
_CLOSING_SECONDS = 2.0


class TcpTransport(RealTimeTransport):
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
        size = len(generation.members)
        super().__init__(rank, size, [member.host for member in generation.members], timeout_seconds)
        self._generation = generation
        self._listener = listener
        self._seconds = timeout_seconds
        self._complete = connect_at_once
        self._given_up = threading.Event()
        self._closed = False
        self._io = IOThread(generation, rank, listener.tls, timeout_seconds)
        self._endpoints = [Endpoint(number, rank, size, self._io, timeout_seconds) for number in (_CALLER, _BESIDE)]
        self._endpoint = self._endpoints[_CALLER]
        self._expected = False
        listener.expect(generation.number, rank, bytes.fromhex(generation.secret), self._accept)
        if connect_at_once:
            self._endpoint.want_all()

    def beside(self) -> TcpTransport:
        other = copy.copy(self)
        other._endpoint = self._endpoints[_BESIDE]
        return other

    def isend(self, tensor: Tensor, to: int, tag: int = 0) -> Pending:
        return self._endpoint.isend(_bytes_of(tensor), to, tag + self._offset, expected=self._expected)

    def ireceive(self, tensor: Tensor, source: int | None, tag: int = 0) -> Pending:
        return self._endpoint.ireceive(_bytes_of(tensor), source, tag + self._offset, expected=self._expected)

    def sleep(self, seconds: float) -> None:
        if self._given_up.wait(seconds):
            raise PeerLost(f"{self.aborted}")

    def all_reduce(self, tensor: Tensor, ranks: Sequence[int] | None = None) -> Pending:
        ring(self._above(_ALL_REDUCE).group(self.members(ranks)), tensor)
        return Done(self.rank)

    def all_gather(self, buffers: Sequence[Tensor], ranks: Sequence[int] | None = None) -> None:
        gathering = self._above(_ALL_GATHER)
        gathering._expected = True
        Transport.all_gather(gathering, buffers, ranks)

    def awaited(self, seconds: float) -> list[int]:
        """The ranks that this one has waited for so long, without a byte from them."""
        return sorted({rank for endpoint in self._endpoints for rank in endpoint.awaited(seconds)})

    def not_connected_within(self, seconds: float) -> list[int]:
        """The ranks that are not connected so much later, nor known to be gone; at once if there are none."""
        return self._endpoints[_CALLER].wait_until_settled(time.monotonic() + seconds)

    def wait_until_connected(self) -> None:
        """Until every other member is connected; raises `PeerLost` or `PeerTimeout` otherwise."""
        missing = self.not_connected_within(self._seconds)
        if self.aborted:
            raise PeerLost(self.aborted)
        if (lost := self._endpoints[_CALLER].alarm) is not None:
            raise lost
        if missing:
            raise PeerTimeout(
                f"rank {self.rank}: rank {', '.join(map(str, missing))} did not connect within {self._seconds:g} s",
                rank=missing[0],
            )

    def _accept(self, claim: Claim, socket: Socket, first: bytes) -> None:
        if not self.rank < claim.caller < self.size or claim.endpoint >= len(self._endpoints):
            raise Refused(f"rank {self.rank} expects no such connection from rank {claim.caller}")
        if not self._endpoints[claim.endpoint].attach(claim.caller, socket, first):
            raise Refused(f"rank {self.rank} expects no such connection: rank {claim.caller} is connected already")

    @property
    def aborted(self) -> str | None:
        """Why this transport was given up (or closed), if it was."""
        return self._endpoints[_CALLER].over

    def abort(self, reason: str) -> None:
        """Give up, from any thread, any number of times (the first reason stays): every wait raises `PeerLost`.

        Nothing is written into anybody's tensors after a wait for them has raised.
        """
        # Takes no locks: also a thread that is in the middle of something here may call it, as a signal's handler does.
        if not self.aborted:
            for endpoint in self._endpoints:
                endpoint.abort(reason)
            self._io.do(self._spread_abort)

    def _spread_abort(self) -> None:
        self._given_up.set()
        for endpoint in self._endpoints:
            endpoint.wake_all()
        self._background.abort(PeerLost(f"{self.aborted}"))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        deadline = time.monotonic() + min(self._seconds, _CLOSING_SECONDS)
        if self.aborted:  # another thread may be in the middle of `abort`, and have come to the first endpoint only
            for endpoint in self._endpoints:
                endpoint.abort(self.aborted)
        elif self._complete:
            # Without this, a rank with nothing to say could leave while others still connect.
            self._endpoints[_CALLER].wait_until_settled(deadline)
        super().close()
        self._listener.forget(self._generation.number, self.rank)
        for endpoint in reversed(self._endpoints):
            endpoint.close(deadline)
        self._io.close()


def _bytes_of(tensor: Tensor) -> memoryview:
    """The tensor's own memory."""
    if tensor.device.type != "cpu":
        raise UnsupportedError(f"this transport carries tensors in memory, not on {tensor.device}; use gloo and NCCL")
    if not tensor.numel():
        return memoryview(b"")
    assert tensor.is_contiguous(), "only a contiguous tensor can be sent or received"
    return tensor.detach().view(torch.uint8).numpy().data
