"""Medians with their spread, and when two of them differ.

spread = Spread.of([3.1, 2.9, 3.3])     # median 3.1, from 2.9 to 3.3, n = 3
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Spread", "differ"]

_NOISE_OF_SINGLE_RUNS = 0.05
_NOISE_OF_MEDIANS = 0.02


@dataclass(frozen=True)
class Spread:
    """The median of some repetitions, their smallest and their largest value."""

    median: float
    low: float
    high: float
    n: int

    @staticmethod
    def of(values: Iterable[float | None]) -> Spread | None:
        """Of those that are there and no NaN; infinite ones count (something that never happened)."""
        known = sorted(value for value in values if value is not None and not math.isnan(value))
        if not known:
            return None
        median = statistics.median(known)
        return Spread(median, known[0], known[-1], len(known))

    def divided_by(self, other: float) -> Spread:
        return Spread(self.median / other, self.low / other, self.high / other, self.n)


def differ(first: Spread, second: Spread) -> bool:
    """Whether the difference is more than repetitions show by themselves.

    With repetitions: their ranges do not overlap, and the medians are more than 2 % apart. A single run has no range,
    and a few percent between two of them are noise: they should be more than 5 % apart.
    """
    larger, smaller = max(first.median, second.median), min(first.median, second.median)
    if smaller == larger:
        return False
    single = min(first.n, second.n) < 2
    limit = _NOISE_OF_SINGLE_RUNS if single else _NOISE_OF_MEDIANS
    apart = smaller <= 0 or larger / smaller - 1 > limit
    return apart and (first.high < second.low or second.high < first.low)
