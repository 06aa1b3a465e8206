"""Deltas (pseudo-gradients): how far replicas have moved since they last agreed, and the mean of that.

delta.begin(replica, comm, ring, codec)             # in the background
...                                                 # local steps meanwhile
delta.complete(replica)                             # as if the mean had been taken when it began
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from minga.base.lazy import Tensor, torch
from minga.codecs import Codec, Int8, Stream
from minga.comm import Pending, Transport, all_reduce_mean, all_reduce_sum, average_in_place
from minga.comm.collectives import Averaging, Collective
from minga.model.replica import Replica

__all__ = ["LAST", "Delta", "Outer", "average_optimizers"]

Outer = Callable[[Tensor], Tensor]
"""Turns the replicas' mean delta into the step of the point where they agree."""

# The last exchange must leave nothing out that matters, yet not take longer than many of those before it.
LAST = Int8(rounding="nearest")


@dataclass
class Delta:
    """How far a part of the parameters is from the last point where all replicas agreed, and its exchange.

    The anchor is that point, with the same bits on every rank. When an exchange has run beside local steps, only the
    delta up to its beginning is replaced by the mean: parameters = new anchor + what was learnt meanwhile. So nothing
    is lost and nothing counts twice, however late the mean arrives; and with it `replica.progress` knows whose steps
    are in the parameters.

    What a codec has left out will come with a later mean, this replica's part of it counting 1/n. This replica knows
    its own part already and need not do without it: parameters = anchor + a share of the residual + what was learnt
    since. The share is half way between 1/n, what it will count in the end, and 1, what counts of deltas that were not
    exchanged yet; in trials with two replicas it was better than 1/n and than nothing.
    """

    part: slice
    anchor: Tensor
    stream: Stream
    ranks: int = 1
    velocity: Tensor | None = None
    """For outer optimizers with momentum."""
    began: int = 0
    """The step after which the last exchange began."""
    agreed: int = -1
    """The step after which the exchange began that led to the anchor; below 0 for the anchor of the start."""
    sent: Tensor | None = None
    """While an exchange is under way: how far the parameters were from the anchor when it began."""
    mean: Tensor | None = None
    """This replica's delta that is under way to the others, and its mean over all replicas, once that is there."""
    averaging: Averaging | None = field(default=None, repr=False)
    pending: Pending | None = field(default=None, repr=False)

    @classmethod
    def of(cls, replica: Replica, part: slice, stream: Stream, ranks: int) -> Delta:
        """From here on."""
        return cls(part, replica.parameters[part].clone(), stream, ranks)

    def begin(self, replica: Replica, comm: Transport, collective: Collective, codec: Codec) -> None:
        """Send this replica's delta on its way, while the caller goes on."""
        communicate = self.prepare(replica, comm, collective, codec)
        self.pending = comm.start(communicate)

    def prepare(
        self,
        replica: Replica,
        comm: Transport,
        collective: Collective,
        codec: Codec,
        stream: Stream | None = None,
    ) -> Callable[[Transport], None]:
        """Encode this replica's delta; what is returned exchanges it, and may run in the background.

        Another codec needs a stream of its own, which takes over what the last one has left out.
        """
        assert self.sent is None, "one exchange at a time"
        self.began = replica.step
        self.sent, mean = self._spaces
        torch.sub(replica.parameters[self.part], self.anchor, out=self.sent)
        residual = self.stream.residual
        if residual is None:
            mean.copy_(self.sent)
        else:  # it was sent once already, and a share of it is in the parameters
            torch.sub(self.sent, residual, alpha=self._kept, out=mean)
        self.mean = mean
        self._change_stream(stream or self.stream, codec)
        if comm.size == 1:
            return lambda beside: None
        if codec.linear and comm.size > 2:
            return lambda beside: average_in_place(beside, mean, collective, codec, self.stream)
        # Between two ranks, or with a codec that can't be added up: all that is left for the background is to wait.
        averaging = self.averaging = Averaging(mean, comm.rank, comm.size, codec, self.stream)
        return averaging.communicate

    def _change_stream(self, stream: Stream, codec: Codec) -> None:
        if stream is not self.stream:
            stream.residual, self.stream.residual = self.stream.residual, None
            self.stream = stream
        if stream.residual is not None and not codec.biased and self.mean is not None:
            # Left by another codec; this one has no use for it.
            self.mean.add_(stream.residual)
            stream.residual = None

    def complete(self, replica: Replica, outer: Outer | None = None, *, steps: Sequence[int] | None = None) -> None:
        """Wait for the mean, and put it in the place of this replica's own delta.

        `steps`: up to which step each rank's delta was, where they are not all of the step at which it began.
        """
        if self.sent is None:
            return
        step = self._step(outer)
        self.anchor.add_(step)
        self._end(replica, replica.parameters[self.part].add_(step).sub_(self.sent), steps)

    def arrive(self) -> None:
        """Wait for the exchange under way; what it brings stays in `mean` until `complete`."""
        if self.pending is not None:
            self.pending.wait()
            self.pending = None
        if self.averaging is not None:
            self.averaging.finish()
            self.averaging = None

    def _step(self, outer: Outer | None) -> Tensor:
        """How far the anchor goes, once the mean is there."""
        assert self.mean is not None
        self.arrive()
        return self.mean if outer is None else outer(self.mean)

    def _end(self, replica: Replica, own: Tensor, steps: Sequence[int] | None = None) -> None:
        if self.stream.residual is not None:
            own.add_(self.stream.residual, alpha=self._kept)
        self.sent = self.mean = None
        self.agreed = self.began if steps is None else min(steps)
        if self.ranks > 1:
            replica.progress.merge(self.began if steps is None else steps, self.part)

    @functools.cached_property
    def _spaces(self) -> tuple[Tensor, Tensor]:
        """For an exchange; the same ones every time, since new memory takes the kernel as long as filling it."""
        return torch.empty_like(self.anchor), torch.empty_like(self.anchor)

    @property
    def _kept(self) -> float:
        """The share of the error-feedback residual that this replica's own parameters have already."""
        return 0.5 + 0.5 / self.ranks

    def average(
        self,
        replica: Replica,
        comm: Transport,
        collective: Collective,
        codec: Codec,
        outer: Outer | None = None,
    ) -> None:
        """Begin and complete at once: all replicas are at the same point, to the last bit, if nothing was left out."""
        self.prepare(replica, comm, collective, codec)(comm)
        self._end(replica, replica.parameters[self.part].copy_(self.anchor.add_(self._step(outer))))

    def settle(self, replica: Replica, comm: Transport, collective: Collective, codec: Codec) -> None:
        """The end of local training: all replicas agree, as what a codec had left out until now comes too."""
        self.complete(replica)
        residual_left = codec.leaves_out or self.stream.residual is not None
        self.average(replica, comm, collective, LAST if residual_left else codec)


def average_optimizers(replica: Replica, comm: Transport) -> None:
    """From steps alone to steps together: everybody's optimizer goes on from the mean of what all of them remember.

    Otherwise equal gradients would move replicas apart. If some remember nothing, since they have had no samples yet,
    all start over.
    """
    if comm.size == 1:
        return
    tensors = [tensor for piece in replica.optimizer_state() for tensor in piece.tensors()]
    mean, square = (value / comm.size for value in all_reduce_sum(comm, len(tensors), len(tensors) ** 2))
    if square != mean**2:
        replica.forget_optimizer()
        return
    for tensor in tensors:
        all_reduce_mean(comm, tensor)
