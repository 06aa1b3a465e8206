"""DiLoCo: many inner steps alone, then an outer optimizer moves the common point along the mean movement."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from torch import Tensor

from minga.base.config import FieldError
from minga.codecs.base import Codec
from minga.comm import COLLECTIVES, Transport
from minga.comm.collectives import CollectiveName
from minga.model.replica import Replica
from minga.strategies.base import Strategy, refuse_momentum_correction
from minga.strategies.delta import LAST, Delta

__all__ = ["DiLoCo"]

_KEY = "diloco"


@dataclass(frozen=True, kw_only=True)
class DiLoCo(Strategy):
    """Inner steps with the workload's optimizer, outer ones with Nesterov's (Douillard et al., arXiv:2311.08105).

    The mean movement of all replicas over `period` steps is an outer gradient, with which SGD with Nesterov momentum
    moves the point where all agree. Streaming (arXiv:2501.18512): with several `fragments` the layers are exchanged in
    turns, so that the network never has more to carry than a fragment, and with `overlap` each exchange has this many
    steps of time while computing goes on. A peer that fails ends the period for everybody; what the others have learnt
    since the last exchange is still in their replicas.
    """

    replicas_differ: ClassVar[bool] = True

    period: int = 32
    """Inner steps between two outer steps of the same parameters."""

    outer_learning_rate: float = 0.7
    """How far the common point follows the mean movement."""

    outer_momentum: float = 0.9
    """Nesterov momentum of the outer optimizer (0: none)."""

    fragments: int = 1
    """Parts of the parameters that are exchanged one after the other, evenly spread over the period."""

    overlap: int = 0
    """Steps that an exchange may take while computing goes on (0: wait for it)."""

    collective: CollectiveName = "ring"
    """How a vector is added up over the ranks."""

    @property
    def codecs(self) -> tuple[Codec, ...]:
        return self.codec, LAST

    @property
    def hides_exchanges(self) -> bool:
        return self.overlap > 0

    def check(self) -> None:
        for name, least in {"period": 1, "fragments": 1, "overlap": 0}.items():
            if getattr(self, name) < least:
                raise FieldError((name,), f"should be at least {least}, not {getattr(self, name)}")
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
        replica.state[_KEY] = {
            "movements": [
                Delta.of(
                    replica.parameters, part, self.stream(replica, f"movement of fragment {number}", part), comm.size
                )
                for number, part in enumerate(parts)
            ],
            "heard": [replica.step] * len(parts),
        }
        replica.heard = [replica.step] * comm.size

    def step(self, replica: Replica, comm: Transport) -> None:
        replica.update_alone()
        movements: list[Delta] = replica.state[_KEY]["movements"]
        collective = COLLECTIVES[self.collective]
        for number, movement in enumerate(movements):
            # The last fragment's turn is at the end of the period, the others' evenly before it.
            turn = (replica.step + self.period * (len(movements) - 1 - number) // len(movements)) % self.period
            outer = partial(self._outer, movement)
            if turn == self.overlap:
                movement.complete(replica.parameters, outer)
                self._hear(replica, comm, number, replica.step - turn)
            if turn == 0 and self.overlap and comm.size > 1:
                movement.begin(replica.parameters, comm, collective, self.codec)
            elif turn == 0:
                movement.average(replica.parameters, comm, collective, self.codec, outer)
                self._hear(replica, comm, number, replica.step)

    def _hear(self, replica: Replica, comm: Transport, fragment: int, step: int) -> None:
        """A fragment has the others' work up to a step; the whole has what all of its fragments have."""
        heard: list[int] = replica.state[_KEY]["heard"]
        heard[fragment] = max(heard[fragment], step)
        replica.heard = [min(heard)] * comm.size

    def _outer(self, movement: Delta, mean: Tensor) -> Tensor:
        """Nesterov: the step that follows the velocity as it will be."""
        if not self.outer_momentum:
            return mean * self.outer_learning_rate
        if movement.velocity is None:
            movement.velocity = mean.clone()
        else:
            movement.velocity.mul_(self.outer_momentum).add_(mean)
        return (mean + self.outer_momentum * movement.velocity).mul_(self.outer_learning_rate)

    def pause(self, replica: Replica, comm: Transport) -> None:
        for movement in replica.state[_KEY]["movements"]:
            movement.arrive()

    def finish(self, replica: Replica, comm: Transport) -> None:
        """Everybody takes the mean of where the replicas are, without another outer step."""
        state: dict[str, Any] = replica.state[_KEY]
        for movement in state["movements"]:
            movement.settle(replica.parameters, comm, COLLECTIVES[self.collective], self.codec)
        replica.heard = None
