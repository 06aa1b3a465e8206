"""BatchNorm's statistics: what layers learn of their inputs by going forward, without gradients.

    statistics = KeptStatistics(model); statistics.keep()
    loss_of(model, batch).backward()
    statistics.mend()

They are averages over all steps: a NaN would stay in them for ever, though its step is left out; and a
step that was broken off in the middle, and is made again, would count twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from minga.base.lazy import Tensor, nn, torch
from minga.model.keras_parts import statistics
from minga.model.non_finite import all_finite

if TYPE_CHECKING:
    from torch.nn.modules.batchnorm import _BatchNorm

__all__ = ["KeptStatistics", "counters_of", "statistics_of"]


def statistics_of(model: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Mean and variance of each BatchNorm layer, torch's and Keras'."""
    return _pairs(_norms(model)) + statistics(model)


def counters_of(model: nn.Module) -> list[Tensor]:
    """How many batches each layer has seen, where it counts them."""
    return _counters(_norms(model))


class KeptStatistics:
    """A model's statistics, and what they were before the step under way."""

    def __init__(self, model: nn.Module) -> None:
        self._norms, self._of_keras = _norms(model), statistics(model)
        self._kept: list[Tensor] = []

    def keep(self) -> None:
        """Before a step's forward pass."""
        self._kept = [tensor.clone() for tensor in (*self._floats(), *_counters(self._norms))]

    def mend(self) -> None:
        """After it: where they are no longer numbers, this step has never been.

        All layers go back, as they do on all ranks that have normalised together and have the same numbers.
        """
        floats = self._floats()
        if floats and not all_finite(torch.cat(floats)):
            self.put_back()

    def put_back(self) -> None:
        """As they were kept, if they were."""
        for tensor, kept in zip((*self._floats(), *_counters(self._norms)), self._kept, strict=False):
            tensor.copy_(kept)

    def _floats(self) -> list[Tensor]:
        return [each for pair in (*_pairs(self._norms), *self._of_keras) for each in pair]


def _norms(model: nn.Module) -> list[_BatchNorm]:
    return [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]


def _pairs(norms: Sequence[_BatchNorm]) -> list[tuple[Tensor, Tensor]]:
    pairs = [(norm.running_mean, norm.running_var) for norm in norms]
    return [(mean, var) for mean, var in pairs if mean is not None and var is not None]


def _counters(norms: Sequence[_BatchNorm]) -> list[Tensor]:
    counters = [norm.num_batches_tracked for norm in norms]
    return [counter for counter in counters if counter is not None]
