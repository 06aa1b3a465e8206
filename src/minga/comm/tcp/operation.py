"""A send or a receive under way over TCP."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from minga.comm.transport import Pending
from minga.errors import PeerLost, UnsupportedError

if TYPE_CHECKING:
    from minga.comm.tcp.endpoint import Endpoint

__all__ = ["Operation", "bytes_of"]


class Operation(Pending):
    """One side of a message. The lock of its endpoint guards all of it."""

    def __init__(
        self, endpoint: Endpoint, peer: int | None, tag: int, view: memoryview, *, sends: bool, expected: bool
    ) -> None:
        self.endpoint = endpoint
        self.peer = peer
        self.tag = tag
        self.view = view
        self.sends = sends
        self.expected = expected
        """Whether both sides know that it comes, so that nobody has to ask for it."""
        self.unattended = False
        """Whether somebody must see to it that it goes on while nobody waits for it."""
        self.touched = 0.0
        """When it last came forward: a long message over a slow link is no hanging one."""
        self._source: int | None = None
        self._error: PeerLost | None = None

    def wait(self, patience: float = 1.0) -> int:
        return self.outcome if self.done else self.endpoint.wait(self, patience)

    @property
    def done(self) -> bool:
        return self._source is not None or self._error is not None

    @property
    def outcome(self) -> int:
        """Who sent it, once it is done."""
        if self._error is not None:
            # A new one each time: several threads may raise it, and each adds its traceback.
            raise type(self._error)(*self._error.args, rank=self._error.rank) from self._error.__cause__
        assert self._source is not None
        return self._source

    def cancel(self) -> None:
        if self.sends:
            raise UnsupportedError("a send can't be cancelled: part of it may have gone already")
        self.endpoint.cancel(self)

    def touch(self) -> None:
        self.touched = time.monotonic()

    def finish(self, source: int) -> None:
        if not self.done:
            self._source = source
            self.endpoint.ended(self)

    def fail(self, error: PeerLost) -> None:
        if not self.done:
            self._error = error
            self.endpoint.ended(self)

    def __str__(self) -> str:
        peer = "any rank" if self.peer is None else f"rank {self.peer}"
        return f"{'send to' if self.sends else 'receive from'} {peer}"


def bytes_of(tensor: Tensor) -> memoryview:
    """The tensor's own memory."""
    if tensor.device.type != "cpu":
        raise UnsupportedError(f"this transport carries tensors in memory, not on {tensor.device}; use gloo and NCCL")
    if not tensor.numel():
        return memoryview(b"")
    assert tensor.is_contiguous(), "only a contiguous tensor can be sent or received"
    return tensor.detach().view(torch.uint8).numpy().data
