"""Loss and metrics on the test set, shared between ranks: sums and counts are added up, never averages."""

from __future__ import annotations

import torch

from minga.comm import Transport, all_reduce_sum
from minga.data.batches import batches_in_order, length
from minga.replica import Replica
from minga.workload import Workload

__all__ = ["evaluate"]

_BATCH = 256


def evaluate(workload: Workload, replica: Replica, comm: Transport, device: torch.device) -> dict[str, float]:
    """Metrics over the whole test set, of which each rank of `comm` looks at its part; nothing if there is none."""
    if workload.test is None:
        return {}
    samples = length(workload.test)
    start, stop = samples * comm.rank // comm.size, samples * (comm.rank + 1) // comm.size
    sums = dict.fromkeys(["loss", *workload.metrics], 0.0)
    replica.model.eval()
    with torch.inference_mode():
        for batch in batches_in_order(workload.test, start, stop, _BATCH, device):
            outputs, targets = workload.predict(replica.model, batch)
            sums["loss"] += float(workload.loss(outputs, targets)) * len(targets)
            for name, metric in workload.metrics.items():
                sums[name] += float(metric(outputs, targets).sum())
    replica.model.train()
    totals = all_reduce_sum(comm, *sums.values())
    return {name: total / samples for name, total in zip(sums, totals, strict=True)}
