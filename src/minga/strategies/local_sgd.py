"""Local SGD: replicas train alone for some steps, then take the mean of their parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from minga.base.config import FieldError
from minga.codecs.base import Codec
from minga.comm import COLLECTIVES, Transport
from minga.comm.collectives import CollectiveName
from minga.model.layout import Bucket
from minga.model.replica import Replica
from minga.strategies.all_reduce import AllReduce
from minga.strategies.base import Strategy, refuse_momentum_correction
from minga.strategies.delta import LAST, Delta
from minga.strategies.optimizer_mean import average_optimizers

__all__ = ["LocalSGD"]

_KEY = "local_sgd"


@dataclass(frozen=True, kw_only=True)
class LocalSGD(Strategy):
    """Average parameters every `period` steps (Stich, arXiv:1805.09767), if wanted while the next period computes.

    Replicas exchange their movement since the last averaging, so that any codec can be used. With `overlap` the mean
    of one period arrives during the next one and replaces the movement that it is the mean of, while what was learnt
    meanwhile stays (as in CoCoD-SGD, Shen et al., arXiv:1906.12043): nobody waits as long as an exchange takes less
    time than these steps. Fewer are closer to synchronous training, more hide slower networks. With period 1 and no
    overlap it is all-reduce, exactly. A peer that fails ends the period for everybody; what the others have learnt
    since the last averaging is still in their replicas.
    """

    replicas_differ: ClassVar[bool] = True

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
    def codecs(self) -> tuple[Codec, ...]:
        return self.codec, LAST

    def check(self) -> None:
        for name, least in {"period": 1, "overlap": 0, "post_local": 0, "growth_steps": 1, "longest": 1}.items():
            if getattr(self, name) < least:
                raise FieldError((name,), f"should be at least {least}, not {getattr(self, name)}")
        if self.overlap > self.period:
            raise FieldError(("overlap",), f"should be at most the period ({self.period}), not {self.overlap}")
        if not 0.01 <= self.growth <= 100:
            raise FieldError(("growth",), f"should be between 0.01 and 100, not {self.growth:g}")
        refuse_momentum_correction(self.codec)

    def period_at(self, step: int) -> int:
        """The period that begins after this step."""
        if self.growth == 1:
            return self.period
        changes = max(0, step - self.post_local) // self.growth_steps
        # As a logarithm, since the power itself may be too large for a float.
        grown = math.log(self.period) + changes * math.log(self.growth)
        return max(1, round(math.exp(min(grown, math.log(max(self.longest, self.period))))))

    @property
    def exchanges_gradients(self) -> bool:
        return self.post_local > 0 or (not self.overlap and (self.period == 1 or self.growth < 1))

    @property
    def hides_exchanges(self) -> bool:
        return self.overlap > 0

    def exchanges(self, replica: Replica) -> bool:
        state: dict[str, Any] = replica.state[_KEY]
        return replica.step in (state["began"], state["began"] + self.overlap) or self._in_step(replica.step)

    def start(self, replica: Replica, comm: Transport) -> None:
        if self.exchanges_gradients:
            self._together().start(replica, comm)
        else:
            super().start(replica, comm)
        first = self.post_local + self.period_at(self.post_local)
        replica.state[_KEY] = {"movement": None, "began": replica.step, "next": first}

    def gradient_ready(self, replica: Replica, bucket: Bucket, comm: Transport) -> None:
        if self._in_step(replica.step):
            self._together().gradient_ready(replica, bucket, comm)

    def step(self, replica: Replica, comm: Transport) -> None:
        state: dict[str, Any] = replica.state[_KEY]
        if self._in_step(replica.step):
            if state["movement"] is not None:
                self._leave(replica, comm)
                average_optimizers(replica, comm)
            self._together().step(replica, comm)
            replica.heard = None
            state["next"] = replica.step + self.period_at(replica.step)
            return
        if state["movement"] is None:
            state["movement"] = Delta.of(replica.parameters, slice(None), self.stream(replica, "movement"), comm.size)
            state["began"] = replica.step - 1
            replica.heard = [replica.step - 1] * comm.size
        replica.update_alone()
        movement: Delta = state["movement"]
        last = replica.step >= state["next"]
        if last or replica.step - state["began"] >= self.overlap:
            movement.complete(replica.parameters)
            replica.heard = [state["began"]] * comm.size
        if last:
            state["began"], state["next"] = replica.step, replica.step + self.period_at(replica.step)
            collective = COLLECTIVES[self.collective]
            if self.overlap:
                movement.begin(replica.parameters, comm, collective, self.codec)
            else:
                movement.average(replica.parameters, comm, collective, self.codec)
                replica.heard = [replica.step] * comm.size

    def pause(self, replica: Replica, comm: Transport) -> None:
        movement: Delta | None = replica.state[_KEY]["movement"]
        if movement is not None:
            movement.arrive()

    def finish(self, replica: Replica, comm: Transport) -> None:
        self._leave(replica, comm)

    def _leave(self, replica: Replica, comm: Transport) -> None:
        """End local training: all replicas agree."""
        movement: Delta | None = replica.state[_KEY]["movement"]
        if movement is not None:
            movement.settle(replica.parameters, comm, COLLECTIVES[self.collective], self.codec)
            replica.state[_KEY]["movement"] = None
            replica.heard = None

    def _together(self) -> AllReduce:
        return AllReduce(collective=self.collective, codec=self.codec)

    def _in_step(self, step: int) -> bool:
        """Whether gradients are averaged in this step."""
        return step <= self.post_local or (not self.overlap and self.period_at(step - 1) == 1)
