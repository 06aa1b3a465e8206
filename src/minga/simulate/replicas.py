"""Replicas in virtual time: the same mathematics or only its sizes, and the time that a profile says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor

from minga.comm.transport import Transport
from minga.data.order import Share
from minga.data.stream import StreamedOrder
from minga.metrics.findings import Findings
from minga.model.layout import Bucket
from minga.model.replica import Replica
from minga.model.sync_batch_norm.normalise import AddUp
from minga.simulate.beside import beside_greenlets
from minga.simulate.sizes import SizedReplica
from minga.simulate.worker import Workplace
from minga.training.train_state import TrainState

__all__ = ["SimulatedReplica", "SimulatedTrainState", "SizedSimulatedReplica"]


class SimulatedReplica(Replica):
    """What a replica computes takes its time. Buckets are announced when they would be ready, after all is computed.

    Code that waits must not run inside of torch's backward pass, whose C++ frames can't be left and come back to: where
    BatchNorm waits for other ranks there, the pass runs on a thread of its own.
    """

    workplace: Workplace

    def compute_gradients(self, compute_loss: Callable[[], Tensor] | None) -> None:
        ready: list[Bucket] = []
        own, self.info.add_up = self.info.add_up, None
        announce, self.when_ready = self.when_ready, ready.append
        try:
            if own is None:
                super().compute_gradients(compute_loss)
            else:
                beside_greenlets(own, partial(self._compute_with, compute_loss))
        finally:
            self.when_ready, self.info.add_up = announce, own
        self.workplace.compute(ready, announce)

    def _compute_with(self, compute_loss: Callable[[], Tensor] | None, add_up: AddUp) -> None:
        self.info.add_up = add_up
        super().compute_gradients(compute_loss)


class SizedSimulatedReplica(SimulatedReplica, SizedReplica):
    """With sizes only."""


@dataclass
class SimulatedTrainState(TrainState):
    """Its samples take time to fetch, and its model to test."""

    workplace: Workplace = field(kw_only=True)

    def fetch(self, share: Share) -> Any:
        # Of a stream, everybody reads all of it.
        self.workplace.fetch(share.total if isinstance(self.order, StreamedOrder) else len(share.indices))
        if share.indices.is_meta:
            return share.indices if len(share.indices) else None
        return super().fetch(share)

    def evaluate(self, together: Transport) -> Findings:
        findings = Findings() if self.replica.parameters.is_meta else super().evaluate(together)
        self.workplace.evaluate(together.size)
        return findings
