"""The facts of the step under way: this rank's share of the batch, and what became of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minga.model.non_finite import NonFinite

if TYPE_CHECKING:
    from minga.model.sync_batch_norm.normalise import AddUp

__all__ = ["StepInfo"]


@dataclass
class StepInfo:
    """Of one rank; the training loop writes its share, `Replica` the rest."""

    weight: float = 1.0
    """This rank's share of the batch of all ranks, relative to an equal share."""
    batch_fraction: float = 1.0
    """This rank's samples, relative to a full batch of its own; 0 where the end of an epoch left it none."""
    loss: float = math.nan
    """The loss of the last step on this rank."""
    non_finite: NonFinite | None = None
    """The NaN or infinity that is in this rank's own loss or gradients."""
    skipped: bool = False
    """Whether the step changed nothing, here or on another rank, because of that."""
    averaged_elements: int = 0
    """How many elements of the gradients are their mean over all ranks by now."""
    add_up: AddUp | None = None
    """How BatchNorm adds up sums over all ranks that have samples; None: each normalises over its own."""

    def begin(self) -> None:
        """Before backward."""
        self.non_finite, self.skipped, self.averaged_elements = None, False, 0

    def gradients_averaged(self, elements: int) -> None:
        self.averaged_elements += elements
