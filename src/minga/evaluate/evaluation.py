"""Loss and metrics on the test set, shared between ranks: sums and counts are added up, never averages."""

from __future__ import annotations

import torch
from torch import Tensor

from minga.comm import Transport, all_reduce_sum
from minga.data.batches import part_of
from minga.errors import WorkloadError
from minga.replica import Replica
from minga.workload import Workload

__all__ = ["evaluate"]

_BATCH = 256


def evaluate(workload: Workload, replica: Replica, comm: Transport, device: torch.device) -> dict[str, float]:
    """Metrics over the whole test set, of which each rank of `comm` looks at its part; nothing if there is none."""
    if workload.test is None:
        return {}
    sums = dict.fromkeys(["loss", *workload.metrics], 0.0)
    samples = 0
    modes = [(module, module.training) for module in replica.model.modules()]
    replica.model.eval()
    with torch.no_grad():  # not inference_mode: models that keep tensors between calls could not train on
        for batch in part_of(workload.test, comm.rank, comm.size, _BATCH, device):
            outputs, targets = workload.predict(replica.model, batch)
            samples += len(targets)
            sums["loss"] += float(workload.loss(outputs, targets)) * len(targets)
            for name, metric in workload.metrics.items():
                sums[name] += _sum(name, metric(outputs, targets), len(targets))
    for module, training in modes:
        module.training = training
    *totals, whole = all_reduce_sum(comm, *sums.values(), samples)
    if not whole:
        raise WorkloadError(f"{workload.name}.test has no samples; give some, or None for no test")
    return {name: total / whole for name, total in zip(sums, totals, strict=True)}


def _sum(name: str, values: Tensor, samples: int) -> float:
    if values.numel() != samples:
        raise WorkloadError(
            f"the metric {name!r} gives {tuple(values.shape)} for {samples} samples, not one value for each; "
            "give the workload's metrics that fit its outputs and targets, such as metrics={}"
        )
    return float(values.sum())
