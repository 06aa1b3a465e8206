"""Metrics of numbers: squared and absolute errors, and how much of the variance is explained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minga.errors import WorkloadError
from minga.metrics.metric import Mean, Metric

__all__ = ["R2", "MeanAbsoluteError", "MeanSquaredError", "RootMeanSquaredError"]


def _differences(outputs: Tensor, targets: Tensor) -> Tensor:
    if outputs.numel() != targets.numel():
        raise WorkloadError(
            f"outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)} should have one number for each other"
        )
    return outputs.double().reshape(targets.shape) - targets.double()


@dataclass(frozen=True, kw_only=True)
class MeanSquaredError(Mean):
    """Over all numbers of all samples."""

    lower_is_better = True

    def sum_and_count(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
        return _differences(outputs, targets).square().sum(), targets.numel()


@dataclass(frozen=True, kw_only=True)
class RootMeanSquaredError(MeanSquaredError):
    """Its root, in the unit of what is predicted."""

    def value(self, state: Tensor) -> float:
        return math.sqrt(super().value(state))


@dataclass(frozen=True, kw_only=True)
class MeanAbsoluteError(Mean):
    """Without squares: a few large errors count less."""

    lower_is_better = True

    def sum_and_count(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
        return _differences(outputs, targets).abs().sum(), targets.numel()


@dataclass(frozen=True, kw_only=True)
class R2(Metric):
    """The part of the variance that is explained: 1 for a perfect model, 0 for one that always tells the mean.

    Of several numbers for each sample, the mean over them. Variances are put together by counts, means and squares
    around these means (Chan et al., 1979): sums of squares alone would lose all digits where the mean is large.
    """

    def state(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Rows for each predicted number: samples, mean, squares around it, squared errors."""
        errors = _differences(outputs, targets).reshape(len(targets), -1).square().sum(dim=0)
        numbers = targets.double().reshape(len(targets), -1)
        mean = numbers.mean(dim=0)
        samples = torch.full_like(mean, len(numbers))
        return torch.stack([samples, mean, (numbers - mean).square().sum(dim=0), errors]).flatten().cpu()

    def combine(self, states: Sequence[Tensor]) -> Tensor:
        total = states[0].view(4, -1)
        for state in states[1:]:
            samples, mean, squares, errors = state.view(4, -1)
            together = total[0] + samples
            step = mean - total[1]
            around = total[2] + squares + step.square() * total[0] * samples / together
            total = torch.stack([together, total[1] + step * samples / together, around, total[3] + errors])
        return total.flatten()

    def value(self, state: Tensor) -> float:
        samples, mean, squares, errors = state.view(4, -1)
        # The mean of what never changes may differ from it in the last digit; those squares are no variance.
        rounding = 4 * torch.finfo(mean.dtype).eps * mean.abs()
        varies = ~(squares <= samples * rounding.square())  # also where they are no numbers, which then is the outcome
        # What never changes is explained by its mean: fully if it is met, not at all otherwise (as in scikit-learn).
        constant = torch.where(errors == 0, 1.0, 0.0).double()
        explained = torch.where(varies, 1 - errors / squares.where(varies, torch.ones_like(squares)), constant)
        return float(explained.mean())
