"""One node, no exchange: the baseline of every comparison."""

from __future__ import annotations

from dataclasses import dataclass

from minga.codecs.plain import Plain
from minga.comm import Transport
from minga.model.replica import Replica
from minga.strategies.base import Strategy, Traits

__all__ = ["Single"]


@dataclass(frozen=True, kw_only=True)
class Single(Strategy):
    """One node trains alone: the baseline of every comparison."""

    @property
    def traits(self) -> Traits:
        return Traits(replicas_differ=False, exact=isinstance(self.codec, Plain), most_nodes=1, runs_on_gpus=True)

    def step(self, replica: Replica, comm: Transport) -> None:
        replica.update()

    def finish(self, replica: Replica, comm: Transport) -> None:
        """There is nobody to agree with."""
