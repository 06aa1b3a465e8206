"""Not a way to train: measures the links between ranks before the first step, and then trains alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from minga.comm import Transport
from minga.comm.probing import probe
from minga.model.replica import Replica
from minga.strategies.base import Strategy

__all__ = ["Probe"]


@dataclass(frozen=True, kw_only=True)
class Probe(Strategy):
    """Measures the links between all ranks, for `minga probe`. A peer that fails ends it."""

    def start(self, replica: Replica, comm: Transport) -> None:
        super().start(replica, comm)
        replica.notes["links"] = asdict(probe(comm))

    def step(self, replica: Replica, comm: Transport) -> None:
        replica.update()
