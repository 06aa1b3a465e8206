"""Mean and deviation of all training inputs in one pass, in pieces that are put together afterwards.

Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances, 1979. The pieces are
the same whatever the number of processes, and are put together in their order, so the outcome is the same to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["MeanAndDeviation"]


@dataclass(frozen=True)
class MeanAndDeviation:
    """Of some values, for each channel or column."""

    count: int
    mean: NDArray[np.float64]
    squares: NDArray[np.float64]
    """Sum of squared distances from the mean."""

    @classmethod
    def of(cls, inputs: Sequence[NDArray[np.generic]], scale: float) -> MeanAndDeviation | None:
        """Of samples with several axes, each channel (the first one); of vectors, each column. None: of none."""
        if not inputs:
            return None
        values = np.stack(inputs).astype(np.float64) * scale
        if values.ndim > 2:
            values = values.swapaxes(0, 1).reshape(values.shape[1], -1).T
        elif values.ndim == 1:
            values = values[:, None]
        mean = values.mean(axis=0)
        return cls(len(values), mean, ((values - mean) ** 2).sum(axis=0))

    def joined(self, other: MeanAndDeviation | None) -> MeanAndDeviation:
        """Of both together; None: of none."""
        if other is None:
            return self
        count = self.count + other.count
        apart = other.mean - self.mean
        mean = self.mean + apart * (other.count / count)
        return MeanAndDeviation(
            count, mean, self.squares + other.squares + apart**2 * (self.count * other.count / count)
        )

    @property
    def deviation(self) -> NDArray[np.float64]:
        """1 where all values are the same: they stay what they are, less their mean."""
        deviation = np.sqrt(self.squares / self.count)
        deviation[deviation < 1e-12] = 1.0
        return deviation
