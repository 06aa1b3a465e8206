"""Synchronous data parallelism: everybody's gradients are averaged before everybody's update."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from minga.base.config import FieldError
from minga.base.lazy import Tensor
from minga.codecs import Plain, Stream
from minga.comm import COLLECTIVES, Transport, average_in_place
from minga.comm.collectives import Collective, CollectiveName, two_level
from minga.model.layout import Bucket
from minga.model.replica import Replica
from minga.strategies.base import Strategy, Traits, check_least

__all__ = ["AllReduce"]


@dataclass(frozen=True, kw_only=True)
class AllReduce(Strategy):
    """Average gradients over all ranks in every step (Li et al., arXiv:2006.15704).

    N ranks with batch B take the same steps as one process with batch N x B. Gradients go out in buckets while
    backward still computes those of earlier layers. A peer that fails ends the step for everybody.
    """

    collective: CollectiveName = "native"
    """How a vector is added up over the ranks."""

    bucket_bytes: int = 4 << 20
    """Gradients are sent in pieces of about this size."""

    group_size: int = 0
    """For two_level: neighbours that add up first (0: the ranks that share a host)."""

    @property
    def traits(self) -> Traits:
        native = self.collective == "native"
        return Traits(
            replicas_differ=False,
            averages_gradients=True,
            exact=isinstance(self.codec, Plain),
            hides_exchanges=False,
            uses_buckets=True,
            backend_collectives=native,
            runs_on_gpus=native,
        )

    def check(self) -> None:
        check_least(self, bucket_bytes=1, group_size=0)
        if self.group_size and self.collective != "two_level":
            raise FieldError(("group_size",), f"is for collective=two_level, not for {self.collective}")

    def start(self, replica: Replica, comm: Transport) -> None:
        super().start(replica, comm)
        replica.cut_buckets(self.bucket_bytes)
        momentum = replica.hand_over_momentum() if self.codec.corrects_momentum and comm.size > 1 else 0.0
        for bucket in replica.buckets:
            self._stream(replica, bucket).momentum = momentum

    def _stream(self, replica: Replica, bucket: Bucket) -> Stream:
        places = slice(bucket.places[0].start, bucket.places[-1].stop)
        return replica.stream(f"gradients of bucket {bucket.index}", places)

    def gradient_ready(self, replica: Replica, bucket: Bucket, comm: Transport) -> None:
        average = self._averaging(replica, bucket)
        if comm.size > 1:
            bucket.pending = comm.start(average)

    def _averaging(self, replica: Replica, bucket: Bucket) -> Callable[[Transport], None]:
        """What is left to do for a bucket that backward has filled."""
        if replica.info.weight != 1.0:
            bucket.gradients.mul_(replica.info.weight)
        stream, non_finite = self._stream(replica, bucket), replica.info.non_finite is not None
        return lambda comm: self.average(comm, bucket.gradients, stream, non_finite=non_finite)

    def average(self, comm: Transport, vector: Tensor, stream: Stream, *, non_finite: bool = False) -> None:
        """`vector` becomes its mean over all ranks; `non_finite`: there is a NaN or an infinity in it."""
        if non_finite and self.codec.changes_form:
            # NaN everywhere survives every codec, so all ranks see that this step can't be used; the error-feedback
            # residual stays as it is.
            aside = stream.aside()
            average_in_place(comm, vector.fill_(math.nan), self._function(), self.codec, aside)
            stream.skip(aside)
            return
        average_in_place(comm, vector, self._function(), self.codec, stream)

    def step(self, replica: Replica, comm: Transport) -> None:
        self.average_gradients(replica)
        replica.update(averaged=True)

    def average_gradients(self, replica: Replica) -> None:
        """A step without its update: gradients are the mean over all ranks afterwards."""
        replica.flush_buckets()
        for bucket in replica.buckets:
            if bucket.pending is not None:
                bucket.pending.wait()

    def average_gradients_now(self, replica: Replica, comm: Transport) -> None:
        """The same for those who want nothing done while backward runs, as the background is busy with other things."""
        replica.flush_buckets()
        for bucket in replica.buckets:
            self._averaging(replica, bucket)(comm)

    def finish(self, replica: Replica, comm: Transport) -> None:
        """Nothing: replicas that start equal and apply equal gradients agree to the last bit."""

    def _function(self) -> Collective:
        if self.collective == "two_level":
            return functools.partial(two_level, group_size=self.group_size)
        return COLLECTIVES[self.collective]
