"""What a metric is: sums over all test samples, and a value that is computed from them once.

    class Hits(Metric):
        def state(self, outputs, targets):              # of a batch: numbers that can be added up
            return torch.tensor([(outputs > targets).sum(), len(targets)])

        def value(self, state):                         # of the whole test set
            return float(state[0] / state[1])

Ranks look at different samples, batches are of different sizes, so a mean of means would be wrong: states are put
together first. A function that gives one value for each sample is a metric too: its mean.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from minga.errors import WorkloadError
from minga.measure.metric_names import lower_by_name

__all__ = ["IGNORED", "Mean", "Metric", "PerSample", "Value", "as_metric"]

Value = float | list[list[float]]
"""A number, or a table of them."""

IGNORED = -100
"""The class of what does not count: what torch's cross entropy leaves out unless it is told otherwise."""


class Metric(ABC):
    """How good a model is, from outputs and targets."""

    lower_is_better: bool = False
    """Errors and the like."""

    tabular: bool = False
    """Whether its value is a table, which can't stand for all as a number can."""

    @abstractmethod
    def state(self, outputs: Any, targets: Any) -> Tensor:
        """What is to be known of a batch: a vector of numbers, always equally long unless `combine` says otherwise."""

    @abstractmethod
    def value(self, state: Tensor) -> Value:
        """Of the state of all batches of all ranks."""

    def combine(self, states: Sequence[Tensor]) -> Tensor:
        """One state for several, in the order of ranks and batches: their sum."""
        return torch.stack(list(states)).sum(dim=0)


class Mean(Metric):
    """A metric that is a sum over how often it counts: these two numbers travel."""

    @abstractmethod
    def sum_and_count(self, outputs: Any, targets: Any) -> tuple[Tensor | float, int]:
        """Of a batch."""

    def state(self, outputs: Any, targets: Any) -> Tensor:
        total, count = self.sum_and_count(outputs, targets)
        return torch.tensor([float(total), float(count)], dtype=torch.float64)

    def value(self, state: Tensor) -> float:
        return float(state[0] / state[1])


@dataclass(frozen=True, kw_only=True)
class PerSample(Mean):
    """The mean of a function that gives one value for each sample."""

    function: Callable[[Any, Any], Tensor]
    """Of outputs and targets."""

    name: str
    """As the workload calls it."""

    @property
    def lower_is_better(self) -> bool:  # type: ignore[override]
        return lower_by_name(self.name)

    def sum_and_count(self, outputs: Any, targets: Any) -> tuple[Tensor, int]:
        values = self.function(outputs, targets)
        if values.numel() != len(targets):
            raise WorkloadError(
                f"the metric {self.name!r} gives {tuple(values.shape)} for {len(targets)} samples, not one value for "
                "each; give the workload's metrics that fit its outputs and targets, such as metrics={}"
            )
        return values.double().sum(), len(targets)


def as_metric(name: str, metric: Metric | Callable[[Any, Any], Tensor]) -> Metric:
    """A workload's metric, which may be a plain function."""
    return metric if isinstance(metric, Metric) else PerSample(function=metric, name=name)
