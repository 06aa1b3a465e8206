"""How far replicas have moved since they last agreed, and the mean of that: what local strategies exchange.

    movement.begin(parameters, comm, ring, codec)       # in the background
    ...                                                 # local steps meanwhile
    movement.complete(parameters)                       # as if the mean had been taken when it began
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from minga.codecs.base import Codec
from minga.codecs.int8 import Int8
from minga.codecs.stream import Stream
from minga.comm import Pending, Transport, all_reduce_mean
from minga.comm.collectives import Collective
from minga.errors import RunError

__all__ = ["Movement", "Outer"]

Outer = Callable[[Tensor], Tensor]
"""Turns the replicas' mean movement into the movement of the point where they agree."""

# The last exchange must leave nothing out that matters, yet not take longer than many of those before it.
_LAST = Int8(rounding="nearest")


@dataclass
class Movement:
    """The way of a part of the parameters from the last point where all replicas agreed.

    The anchor is that point, with the same bits on every rank. When an exchange has run beside local steps, only the
    movement up to its beginning is replaced by the mean: parameters = new anchor + what was learnt meanwhile. So
    nothing is lost and nothing counts twice, however late the mean arrives.
    """

    part: slice
    anchor: Tensor
    stream: Stream
    velocity: Tensor | None = None
    """For outer optimizers with momentum."""
    moved: Tensor | None = None
    """This replica's movement that is under way to the others."""
    mean: Tensor | None = None
    """Its mean over all replicas, once it is there."""
    pending: Pending | None = field(default=None, repr=False)

    @classmethod
    def of(cls, parameters: Tensor, part: slice, stream: Stream) -> Movement:
        return cls(part, parameters[part].clone(), stream)

    def begin(self, parameters: Tensor, comm: Transport, collective: Collective, codec: Codec) -> None:
        """Send this replica's movement on its way, while the caller goes on."""
        mean = self.take(parameters)
        self.pending = comm.start(lambda beside: all_reduce_mean(beside, mean, collective, codec, self.stream))

    def take(self, parameters: Tensor) -> Tensor:
        """This replica's movement, to be replaced by its mean in place."""
        assert self.moved is None, "one exchange at a time"
        self.moved = parameters[self.part] - self.anchor
        self.mean = self.moved.clone()
        return self.mean

    def complete(self, parameters: Tensor, outer: Outer | None = None) -> None:
        """Wait for the mean, and put it in the place of this replica's own movement."""
        if self.moved is None or self.mean is None:
            return
        if self.pending is not None:
            self.pending.wait()
        step = self.mean if outer is None else outer(self.mean)
        self.anchor.add_(step)
        parameters[self.part].add_(step).sub_(self.moved)
        self.moved = self.mean = self.pending = None

    def average(
        self,
        parameters: Tensor,
        comm: Transport,
        collective: Collective,
        codec: Codec,
        outer: Outer | None = None,
    ) -> None:
        """Begin and complete at once: afterwards all replicas are at the same point, to the last bit."""
        mean = self.take(parameters)
        all_reduce_mean(comm, mean, collective, codec, self.stream)
        self.anchor.add_(mean if outer is None else outer(mean))
        parameters[self.part].copy_(self.anchor)
        self.moved = self.mean = None

    def settle(self, parameters: Tensor, comm: Transport, collective: Collective, codec: Codec) -> None:
        """The last averaging: what a codec had left out until now comes too."""
        self.complete(parameters)
        if self.stream.residual is not None:
            parameters[self.part].add_(self.stream.residual)
            self.stream.residual = None
        self.average(parameters, comm, collective, _LAST if codec.biased else codec)
        if not torch.isfinite(self.anchor).all():
            raise RunError("the averaged parameters are not finite")
