"""Loss and metrics on the test set, shared between ranks: sums and counts are added up, never averages."""

from __future__ import annotations

import torch
from torch import Tensor

from minga.comm import Transport, all_reduce_sum
from minga.data.batches import batches_in_order, length
from minga.errors import WorkloadError
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
    modes = [(module, module.training) for module in replica.model.modules()]
    replica.model.eval()
    with torch.no_grad():  # not inference_mode: models that keep tensors between calls could not train on
        for batch in batches_in_order(workload.test, start, stop, _BATCH, device):
            outputs, targets = workload.predict(replica.model, batch)
            sums["loss"] += float(workload.loss(outputs, targets)) * len(targets)
            for name, metric in workload.metrics.items():
                sums[name] += _sum(name, metric(outputs, targets), len(targets))
    for module, training in modes:
        module.training = training
    totals = all_reduce_sum(comm, *sums.values())
    return {name: total / samples for name, total in zip(sums, totals, strict=True)}


def _sum(name: str, values: Tensor, samples: int) -> float:
    if values.numel() != samples:
        raise WorkloadError(
            f"the metric {name!r} gives {tuple(values.shape)} for {samples} samples, not one value for each; "
            "give the workload's metrics that fit its outputs and targets, such as metrics={}"
        )
    return float(values.sum())
