"""The area under the receiver operating characteristic, exact however samples are spread over ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minga.errors import WorkloadError
from minga.metrics.metric import IGNORED, Metric

__all__ = ["AreaUnderROC"]


@dataclass(frozen=True, kw_only=True)
class AreaUnderROC(Metric):
    """How often a sample with the label has a higher score than one without; of ties, half.

    Two classes: one score for each sample, or two outputs. Labels: outputs and targets samples x labels, the mean over
    labels. Several classes: the mean over classes of one against the rest, by softmax. Labels that all samples have, or
    none, say nothing and are left out; if all are like that the value is not a number. So it is with scores that are no
    numbers, which have no order. A class of -100 does not count.

    No sum of fixed size tells it, and a histogram of scores would only come near it. So the scores travel: 16 bytes for
    each sample and label, from every rank to every other.
    """

    def state(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The number of labels, then scores and truth of each sample."""
        scores, truth = _by_label(outputs.detach().double(), targets)
        rows = torch.cat([scores, truth], dim=1).flatten().cpu()
        return torch.cat([torch.tensor([float(scores.shape[1])], dtype=torch.float64), rows])

    def combine(self, states: Sequence[Tensor]) -> Tensor:
        return torch.cat([states[0][:1], *(state[1:] for state in states)])

    def value(self, state: Tensor) -> float:
        labels = int(state[0])
        rows = state[1:].view(-1, 2 * labels)
        areas = [_area(rows[:, label], rows[:, labels + label] > 0.5) for label in range(labels)]
        known = [area for area in areas if area is not None]
        return sum(known) / len(known) if known else float("nan")


def _by_label(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Both as samples x labels."""
    if outputs.shape == targets.shape or outputs.shape == (*targets.shape, 1):
        return outputs.reshape(len(targets), -1), targets.double().reshape(len(targets), -1)
    if outputs.dim() == 2 and targets.shape == outputs.shape[:1]:
        counted = targets != IGNORED
        outputs, targets = outputs[counted], targets[counted]
        if outputs.shape[1] == 2:
            return outputs[:, 1:] - outputs[:, :1], targets.double().unsqueeze(1)
        classes = torch.arange(outputs.shape[1], device=outputs.device)
        return outputs.softmax(dim=1), (targets.unsqueeze(1) == classes).double()
    raise WorkloadError(
        "ROC AUC is of scores and truth of the same shape, or of outputs samples x classes and a class for each "
        f"sample, not of {tuple(outputs.shape)} and {tuple(targets.shape)}"
    )


def _area(scores: Tensor, truth: Tensor) -> float | None:
    """By the sum of ranks (Mann and Whitney); halves and whole numbers, so no order of samples changes a bit of it."""
    positive = int(truth.sum())
    negative = len(truth) - positive
    if not positive or not negative:
        return None
    if scores.isnan().any():
        return math.nan
    _, places, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    last = counts.cumsum(dim=0)
    middle_ranks = (2 * last - counts + 1).double() / 2
    ranks = float(middle_ranks[places[truth]].sum())
    return (ranks - positive * (positive + 1) / 2) / (positive * negative)
