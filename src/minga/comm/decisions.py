"""Rank 0 decides, and all ranks act on it at the same later step, without anybody waiting for that.

    decisions = Decisions(tag=7001)
    taken = decisions.taken()                       # at some steps, the same on all ranks: what was announced before
    decisions.announce(comm, [1.0, 10.0])           # rank 0's values count, of the others only how many they are

A message has all the steps until `taken` is called again to arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from minga.comm.transport import Pending, Transport

__all__ = ["Decisions"]


@dataclass
class Decisions:
    """One rank's side of it."""

    tag: int
    """Of the messages."""
    message: Tensor | None = field(default=None, repr=False)
    """The one under way."""
    pending: list[Pending] = field(default_factory=list, repr=False)

    def announce(self, comm: Transport, values: Sequence[float]) -> None:
        """On all ranks, after `taken`."""
        assert self.message is None, "one announcement at a time"
        self.message = torch.tensor(values, dtype=torch.float64)
        if comm.rank:
            self.pending = [comm.ireceive(self.message, 0, self.tag)]
        else:
            self.pending = [comm.isend(self.message, other, self.tag) for other in range(1, comm.size)]

    def taken(self) -> list[float] | None:
        """What rank 0 announced last, once; None: nothing since then."""
        for each in self.pending:
            each.wait()
        message, self.message, self.pending = self.message, None, []
        return None if message is None else message.tolist()
