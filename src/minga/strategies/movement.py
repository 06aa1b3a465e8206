"""How far replicas have moved since they last agreed, and the mean of that: what local strategies exchange.

movement.begin(parameters, comm, ring, codec)       # in the background
...                                                 # local steps meanwhile
movement.complete(parameters)                       # as if the mean had been taken when it began
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from minga.codecs.base import Codec
from minga.codecs.int8 import Int8
from minga.codecs.stream import Stream
from minga.comm import Pending, Transport, all_reduce_mean
from minga.comm.collectives import Collective

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

    def take(self, parameters: Tensor) -> None:
        """Remember how far this replica has come; the mean of that over all replicas will take its place."""
        assert self.moved is None, "one exchange at a time"
        self.moved = parameters[self.part] - self.anchor
        self.mean = self.moved.clone()

    def exchange(self, comm: Transport, collective: Collective, codec: Codec, stream: Stream | None = None) -> None:
        """Find the mean of what was taken; may run beside local steps. The stream may change with the codec."""
        assert self.mean is not None, "take comes first"
        stream = stream or self.stream
        if stream is not self.stream:
            stream.residual, self.stream.residual = self.stream.residual, None
            self.stream = stream
        if stream.residual is not None and not codec.biased:  # left by another codec; this one leaves nothing out
            self.mean.add_(stream.residual)
            stream.residual = None
        all_reduce_mean(comm, self.mean, collective, codec, stream)

    def exchange_all(self, comm: Transport, collective: Collective, codec: Codec) -> None:
        """The last exchange: what a codec has left out until now comes too."""
        self.exchange(comm, collective, _LAST if codec.biased else codec)

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

    # --- for strategies that exchange at fixed steps ---

    def begin(self, parameters: Tensor, comm: Transport, collective: Collective, codec: Codec) -> None:
        """Send this replica's movement on its way, while the caller goes on."""
        self.take(parameters)
        self.pending = comm.start(lambda beside: self.exchange(beside, collective, codec))

    def average(
        self,
        parameters: Tensor,
        comm: Transport,
        collective: Collective,
        codec: Codec,
        outer: Outer | None = None,
    ) -> None:
        """Begin and complete at once."""
        self.take(parameters)
        self.exchange(comm, collective, codec)
        self.agree(parameters, outer)

    def settle(self, parameters: Tensor, comm: Transport, collective: Collective, codec: Codec) -> None:
        """The end of local training: all replicas agree."""
        self.complete(parameters)
        self.take(parameters)
        self.exchange_all(comm, collective, codec)
        self.agree(parameters)

    def agree(self, parameters: Tensor, outer: Outer | None = None) -> None:
        """After an exchange without local steps beside it: all replicas are at the same point, to the last bit."""
        assert self.mean is not None
        self.anchor.add_(self.mean if outer is None else outer(self.mean))
        parameters[self.part].copy_(self.anchor)
        self.moved = self.mean = self.pending = None
