"""DiLoCo: many inner steps alone, then an outer optimizer moves the common point along the mean delta."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from minga.base.config import FieldError
from minga.base.lazy import Tensor, torch
from minga.comm import COLLECTIVES, Transport
from minga.comm.collectives import CollectiveName
from minga.model.replica import Replica
from minga.strategies.base import Strategy, Traits, check_least, refuse_momentum_correction
from minga.strategies.capabilities import Anchored, Checkpointed
from minga.strategies.delta import LAST, Delta

__all__ = ["DiLoCo"]

_KEY = "diloco"


@dataclass
class DiLoCoState:
    deltas: list[Delta]
    """One for each fragment."""


@dataclass(frozen=True, kw_only=True)
class DiLoCo(Strategy, Checkpointed, Anchored):
    """Inner steps with the workload's optimizer, outer ones with Nesterov's (Douillard et al., arXiv:2311.08105).

    The mean delta of all replicas over `period` steps is an outer gradient, with which SGD with Nesterov momentum moves
    the point where all agree. Streaming (arXiv:2501.18512): with several `fragments` the layers are exchanged in
    turns, so that the network never has more to carry than a fragment, and with `overlap` each exchange has this many
    steps of time while computing goes on. A peer that fails ends the period for everybody; what the others have learnt
    since the last exchange is still in their replicas.
    """

    period: int = 32
    """Inner steps between two outer steps of the same parameters."""

    outer_learning_rate: float = 0.7
    """How far the common point follows the mean delta."""

    outer_momentum: float = 0.9
    """Nesterov momentum of the outer optimizer (0: none)."""

    fragments: int = 1
    """Parts of the parameters that are exchanged one after the other, evenly spread over the period."""

    overlap: int = 0
    """Steps that an exchange may take while computing goes on (0: wait for it)."""

    collective: CollectiveName = "ring"
    """How a vector is added up over the ranks."""

    @property
    def traits(self) -> Traits:
        return Traits(
            hides_exchanges=self.overlap > 0,
            period=self.period,
            codecs=(self.codec, LAST),
            epochs_factor=lambda nodes: 1.0 + 0.015 * math.sqrt(self.period),
        )

    def check(self) -> None:
        check_least(self, period=1, fragments=1, overlap=0)
        if self.fragments > self.period:
            raise FieldError(("fragments",), f"should be at most the period ({self.period}), not {self.fragments}")
        if self.overlap >= self.period:
            raise FieldError(("overlap",), f"should be less than the period ({self.period}), not {self.overlap}")
        if not 0 < self.outer_learning_rate <= 10:
            raise FieldError(
                ("outer_learning_rate",), f"should be above 0 and at most 10, not {self.outer_learning_rate:g}"
            )
        if not 0 <= self.outer_momentum < 1:
            raise FieldError(("outer_momentum",), f"should be 0 or more and below 1, not {self.outer_momentum:g}")
        refuse_momentum_correction(self.codec)

    def start(self, replica: Replica, comm: Transport) -> None:
        super().start(replica, comm)
        parts = [part for part in replica.fragments(self.fragments) if part.start < part.stop]
        replica.state[_KEY] = DiLoCoState(
            [
                Delta.of(replica, part, replica.stream(f"movement of fragment {number}", part), comm.size)
                for number, part in enumerate(parts)
            ]
        )

    def step(self, replica: Replica, comm: Transport) -> None:
        replica.update()
        deltas: list[Delta] = replica.state[_KEY].deltas
        collective = COLLECTIVES[self.collective]
        for number, delta in enumerate(deltas):
            # The last fragment's turn is at the end of the period, the others' evenly before it.
            turn = (replica.step + self.period * (len(deltas) - 1 - number) // len(deltas)) % self.period
            outer = partial(self._outer, delta)
            if turn == self.overlap:
                delta.complete(replica, outer)
            if turn == 0 and self.overlap and comm.size > 1:
                delta.begin(replica, comm, collective, self.codec)
            elif turn == 0:
                delta.average(replica, comm, collective, self.codec, outer)

    def _outer(self, delta: Delta, mean: Tensor) -> Tensor:
        """Nesterov: the step that follows the velocity as it will be."""
        if not self.outer_momentum:
            return mean * self.outer_learning_rate
        if delta.velocity is None:
            delta.velocity = mean.clone()
        else:
            delta.velocity.mul_(self.outer_momentum).add_(mean)
        return (mean + self.outer_momentum * delta.velocity).mul_(self.outer_learning_rate)

    def pause(self, replica: Replica, comm: Transport) -> None:
        for delta in replica.state[_KEY].deltas:
            delta.arrive()

    def anchor(self, replica: Replica, comm: Transport, since: int) -> Tensor | None:
        deltas: list[Delta] = replica.state[_KEY].deltas
        if any(delta.agreed <= since for delta in deltas):
            return None
        return torch.cat([delta.anchor for delta in deltas])

    def finish(self, replica: Replica, comm: Transport) -> None:
        """Everybody takes the mean of where the replicas are, without another outer step."""
        for delta in replica.state[_KEY].deltas:
            delta.settle(replica, comm, COLLECTIVES[self.collective], self.codec)
