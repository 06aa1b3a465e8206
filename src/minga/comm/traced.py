"""Counts what a rank sends and how long it waits, around any transport.

    comm = TracedTransport(transport, Traffic(), waiting=lambda: recorder.spans.span("wait"))

Strategies never measure anything; this wrapper does it for them. Waiting is what the caller itself waits;
what a background job waits for is hidden behind the caller's own work and is not counted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor

from minga.comm.transport import Pending, Sent, Transport
from minga.errors import PeerLost
from minga.measure.traffic import Traffic

__all__ = ["TracedTransport"]


class TracedTransport(Transport):
    """Another transport, counted."""

    def __init__(
        self,
        inner: Transport,
        traffic: Traffic,
        waiting: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
        *,
        background: bool = False,
    ) -> None:
        """`background`: what is sent here is training, also while the caller has paused counting to test the model."""
        self._inner = inner
        self._traffic = traffic
        self.waiting = waiting
        self._background = background
        self.rank = inner.rank
        self.size = inner.size
        self.hosts = inner.hosts
        self.last_sent: dict[int, MessageFacts] = {}
        """By rank, for whom a message was that it did not expect."""

    def isend(self, tensor: Tensor, to: int, tag: int = 0) -> Pending:
        if tensor.numel():
            self._traffic.count(tensor.nbytes, always=self._background)
        message = self.last_sent[to] = MessageFacts(tensor.numel(), tensor.dtype, to, tag, sent=True)
        return _Timed(self._inner.isend(tensor, to, tag), self, message)

    def ireceive(self, tensor: Tensor, source: int | None, tag: int = 0) -> Pending:
        message = MessageFacts(tensor.numel(), tensor.dtype, source, tag, sent=False)
        return _Timed(self._inner.ireceive(tensor, source, tag), self, message)

    def now(self) -> float:
        return self._inner.now()

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)

    def start(self, function: Callable[[Transport], None]) -> Pending:
        def run(beside: Transport) -> None:
            traced = TracedTransport(beside, self._traffic, background=True)
            traced.merges, traced.last_sent = self.merges, self.last_sent
            function(traced)

        return _Timed(self._inner.start(run), self, "for an exchange beside the computing")

    def all_reduce(self, tensor: Tensor, ranks: Sequence[int] | None = None) -> Pending:
        # Gloo and NCCL reduce in a ring: every rank sends 2 (n-1) pieces of 1/n of the vector.
        members = len(self.members(ranks))
        sent = 2 * (members - 1) * tensor.nbytes // members
        self._traffic.count(sent, 2 * (members - 1), always=self._background)
        return _Timed(
            self._inner.all_reduce(tensor, ranks), self, f"for an all_reduce of {_size(tensor.numel(), tensor.dtype)}"
        )

    def all_gather(self, buffers: Sequence[Tensor], ranks: Sequence[int] | None = None) -> None:
        others = len(buffers) - 1
        if others and buffers[0].numel():
            self._traffic.count(others * buffers[0].nbytes, others, always=self._background)
        with self.waiting():
            try:
                self._inner.all_gather(buffers, ranks)
            except PeerLost as lost:
                lost.waiting = lost.waiting or f"for an all_gather of {_size(buffers[0].numel(), buffers[0].dtype)}"
                raise
        self.count_received()

    def carry_out(self, name: str, vector: Tensor, ranks: Sequence[int] | None = None) -> Sent | None:
        sent = self._inner.carry_out(name, vector, ranks)
        if sent is not None:
            self._traffic.count(sent.bytes, sent.messages, always=self._background)
        return sent

    def count_received(self) -> None:
        self._traffic.count_received(always=self._background)

    def close(self) -> None:
        self._inner.close()


@dataclass(eq=False, slots=True)
class MessageFacts:
    """What goes from one rank to another, in words if it comes to that; not its tensor, which it would keep alive."""

    length: int
    dtype: torch.dtype
    peer: int | None
    tag: int
    sent: bool

    @property
    def content(self) -> str:
        """Such as "10 float32 (tag 3)"."""
        return f"{_size(self.length, self.dtype)}{f' (tag {self.tag})' if self.tag else ''}"

    def __str__(self) -> str:
        peer = "any rank" if self.peer is None else f"rank {self.peer}"
        return f"to {'send' if self.sent else 'receive'} {self.content} {'to' if self.sent else 'from'} {peer}"


def _size(length: int, dtype: torch.dtype) -> str:
    return f"{length:,} {str(dtype).removeprefix('torch.')}"


@dataclass(eq=False, slots=True)
class _Timed(Pending):
    inner: Pending
    comm: TracedTransport
    what: MessageFacts | str

    def wait(self, patience: float = 1.0) -> int:
        with self.comm.waiting():
            try:
                source = self.inner.wait(patience)
            except PeerLost as lost:
                lost.waiting = lost.waiting or str(self.what)
                raise
        if not isinstance(self.what, MessageFacts) or not self.what.sent:
            self.comm.count_received()
        return source

    @property
    def done(self) -> bool:
        return self.inner.done

    def cancel(self) -> None:
        self.inner.cancel()
