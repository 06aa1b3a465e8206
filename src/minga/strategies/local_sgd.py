"""Local SGD: replicas train alone for some steps, then take the mean of their parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass

from minga.base.config import FieldError
from minga.base.lazy import Tensor
from minga.comm import COLLECTIVES, Transport
from minga.comm.collectives import CollectiveName
from minga.model.layout import Bucket
from minga.model.replica import Replica
from minga.strategies.all_reduce import AllReduce
from minga.strategies.base import Strategy, Traits, check_least, refuse_momentum_correction
from minga.strategies.capabilities import Anchored, Checkpointed, Periodic
from minga.strategies.delta import LAST, Delta, average_optimizers

__all__ = ["LocalSGD"]

_KEY = "local_sgd"


@dataclass
class LocalSGDState:
    """Where a rank is in its period."""

    delta: Delta | None
    """Since the last averaging; None while gradients are averaged instead."""
    period_began: int
    """After this step: with the last averaging, or the first local step."""
    next: int
    """The step after which the next averaging begins."""


@dataclass(frozen=True, kw_only=True)
class LocalSGD(Strategy, Checkpointed, Periodic, Anchored):
    """Average parameters every `period` steps (Stich, arXiv:1805.09767), if wanted while the next period computes.

        x_i <- x_i - lr * gradient_i        in every step, by the workload's optimizer, on each rank i alone
        x_i <- mean of all x_j              after every `period` steps

    The mean is computed as anchor + mean of (x_j - anchor), where the anchor is the last mean: these deltas may be
    encoded by any codec. With `overlap` the mean arrives some steps later and replaces the delta that was sent, while
    what was learnt meanwhile stays (CoCoD-SGD, Shen et al., arXiv:1906.12043): nobody waits as long as an exchange
    takes less time than these steps. Few are closer to synchronous training, more hide slower networks. With period 1
    and no overlap it is all-reduce, exactly. A peer that fails ends the period for everybody; what the others have
    learnt since the last averaging is still in their replicas.
    """

    period: int = 8
    """Local steps between two averagings."""

    overlap: int = 0
    """Steps of the next period during which the exchange may go on (0: everybody waits for it)."""

    post_local: int = 0
    """Steps at the beginning in which gradients are averaged instead (post-local SGD, Lin et al., arXiv:1808.07217)."""

    growth: float = 1.0
    """The period is multiplied by this every `growth_steps` steps: above 1 it grows, below 1 it shrinks."""

    growth_steps: int = 100
    """Steps after which the period changes, if growth is not 1."""

    longest: int = 256
    """A growing period ends here."""

    collective: CollectiveName = "ring"
    """How a vector is added up over the ranks."""

    @property
    def traits(self) -> Traits:
        return Traits(
            hides_exchanges=self.overlap > 0,
            uses_buckets=self.post_local > 0 or (not self.overlap and (self.period == 1 or self.growth < 1)),
            period=self.period,
            codecs=(self.codec, LAST),
            epochs_factor=lambda nodes: 1.0 + 0.01 * math.sqrt(self.period + self.overlap),
        )

    def start(self, replica: Replica, comm: Transport) -> None:
        if self.traits.uses_buckets:
            self._all_reduce().start(replica, comm)
        else:
            super().start(replica, comm)
        began = max(replica.step, self.post_local)
        first = began + self.period_at(began)
        replica.state[_KEY] = LocalSGDState(delta=None, period_began=replica.step, next=first)

    def step(self, replica: Replica, comm: Transport) -> None:
        state: LocalSGDState = replica.state[_KEY]
        if self._averages_gradients(replica.step):
            self._synchronous_step(replica, comm, state)
            return
        if state.delta is None:  # the first local step: what replicas learn from here on is averaged
            stream = replica.stream("movement")
            state.delta, state.period_began = Delta.of(replica, slice(None), stream, comm.size), replica.step - 1

        replica.update()
        if replica.step == state.period_began + self.overlap:
            state.delta.complete(replica)
        if replica.step >= state.next:
            self._average(replica, comm, state.delta)
            state.period_began, state.next = replica.step, replica.step + self.period_at(replica.step)

    def _average(self, replica: Replica, comm: Transport, delta: Delta) -> None:
        """Replicas become their mean: now, or `overlap` steps later if the exchange runs beside them."""
        collective = COLLECTIVES[self.collective]
        if self.overlap:
            delta.complete(replica)  # of the period before
            delta.begin(replica, comm, collective, self.codec)
        else:
            delta.average(replica, comm, collective, self.codec)

    def finish(self, replica: Replica, comm: Transport) -> None:
        self._end_local_steps(replica, comm)

    def _end_local_steps(self, replica: Replica, comm: Transport) -> None:
        """Average one last time: all replicas agree."""
        state: LocalSGDState = replica.state[_KEY]
        if state.delta is not None:
            state.delta.settle(replica, comm, COLLECTIVES[self.collective], self.codec)
            state.delta = None

    def pause(self, replica: Replica, comm: Transport) -> None:
        delta = replica.state[_KEY].delta
        if delta is not None:
            delta.arrive()

    def anchor(self, replica: Replica, comm: Transport, since: int) -> Tensor | None:
        delta: Delta | None = replica.state[_KEY].delta
        if delta is None:  # gradients are averaged: replicas are equal
            return replica.parameters
        return delta.anchor if delta.agreed > since else None

    def exchanges(self, replica: Replica) -> bool:
        state: LocalSGDState = replica.state[_KEY]
        return replica.step in (state.period_began, state.period_began + self.overlap) or self._averages_gradients(
            replica.step
        )

    # --- periods that change, and steps together --------------------------------------------------------------------

    def period_at(self, step: int) -> int:
        """The period that begins after this step."""
        if self.growth == 1:
            return self.period
        changes = max(0, step - self.post_local) // self.growth_steps
        # As a logarithm, since the power itself may be too large for a float.
        grown = math.log(self.period) + changes * math.log(self.growth)
        return max(1, round(math.exp(min(grown, math.log(max(self.longest, self.period))))))

    def _averages_gradients(self, step: int) -> bool:
        return step <= self.post_local or (not self.overlap and self.period_at(step - 1) == 1)

    def _synchronous_step(self, replica: Replica, comm: Transport, state: LocalSGDState) -> None:
        if state.delta is not None:
            self._end_local_steps(replica, comm)
            average_optimizers(replica, comm)
        self._all_reduce().step(replica, comm)
        replica.progress.merge(replica.step)
        state.next = replica.step + self.period_at(replica.step)

    def gradient_ready(self, replica: Replica, bucket: Bucket, comm: Transport) -> None:
        if self._averages_gradients(replica.step):
            self._all_reduce().gradient_ready(replica, bucket, comm)

    def _all_reduce(self) -> AllReduce:
        return AllReduce(collective=self.collective, codec=self.codec)

    def check(self) -> None:
        check_least(self, period=1, overlap=0, post_local=0, growth_steps=1, longest=1)
        if self.overlap > self.period:
            raise FieldError(("overlap",), f"should be at most the period ({self.period}), not {self.overlap}")
        if not 0.01 <= self.growth <= 100:
            raise FieldError(("growth",), f"should be between 0.01 and 100, not {self.growth:g}")
        refuse_momentum_correction(self.codec)
