"""Counts what a rank sends and how long it waits, around any transport.

    comm = TracedTransport(transport, Traffic(), waiting=recorder.waiting)

Strategies never measure anything; this wrapper does it for them. Waiting is what the caller itself waits;
what a background job waits for is hidden behind the caller's own work and is not counted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from torch import Tensor

from minga.comm.transport import Pending, Sent, Transport
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
        self._waiting = waiting
        self._background = background
        self.rank = inner.rank
        self.size = inner.size
        self.hosts = inner.hosts

    def isend(self, tensor: Tensor, to: int, tag: int = 0) -> Pending:
        if tensor.numel():
            self._traffic.count(tensor.nbytes, always=self._background)
        return _Timed(self._inner.isend(tensor, to, tag), self._waiting)

    def ireceive(self, tensor: Tensor, source: int | None, tag: int = 0) -> Pending:
        return _Timed(self._inner.ireceive(tensor, source, tag), self._waiting)

    def now(self) -> float:
        return self._inner.now()

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)

    def start(self, function: Callable[[Transport], None]) -> Pending:
        def run(beside: Transport) -> None:
            traced = TracedTransport(beside, self._traffic, background=True)
            traced.merges = self.merges
            function(traced)

        return _Timed(self._inner.start(run), self._waiting)

    def all_reduce(self, tensor: Tensor, ranks: Sequence[int] | None = None) -> Pending:
        # Gloo and NCCL reduce in a ring: every rank sends 2 (n-1) pieces of 1/n of the vector.
        members = self.size if ranks is None else len(ranks)
        sent = 2 * (members - 1) * tensor.nbytes // members
        self._traffic.count(sent, 2 * (members - 1), always=self._background)
        return _Timed(self._inner.all_reduce(tensor, ranks), self._waiting)

    def all_gather(self, buffers: Sequence[Tensor], ranks: Sequence[int] | None = None) -> None:
        others = len(buffers) - 1
        if others and buffers[0].numel():
            self._traffic.count(others * buffers[0].nbytes, others, always=self._background)
        with self._waiting():
            self._inner.all_gather(buffers, ranks)

    def carry_out(self, name: str, vector: Tensor, ranks: Sequence[int] | None = None) -> Sent | None:
        sent = self._inner.carry_out(name, vector, ranks)
        if sent is not None:
            self._traffic.count(sent.bytes, sent.messages, always=self._background)
        return sent

    def close(self) -> None:
        self._inner.close()


class _Timed(Pending):
    def __init__(self, inner: Pending, waiting: Callable[[], AbstractContextManager[None]]) -> None:
        self._inner = inner
        self._waiting = waiting

    def wait(self, patience: float = 1.0) -> int:
        with self._waiting():
            return self._inner.wait(patience)

    @property
    def done(self) -> bool:
        return self._inner.done

    def cancel(self) -> None:
        self._inner.cancel()
