"""How far a plan may be off: by what predictions missed where they were held against measurements.

    between(price, epochs=5, what="time")            # lowest and highest: nine of ten are within

Two things are uncertain: how long a step takes, and how many epochs a strategy needs that does not learn exactly what
one node would. Bytes of a step are exact.
"""

from __future__ import annotations

from minga.plan.pricing import Price

__all__ = ["REACHED_ERROR", "STEP_ERROR", "between", "reached_between", "step_between", "waiting_between"]

STEP_ERROR = 0.15
"""Nine of ten predicted times of steps were nearer than this to the measured ones: docs/results/predictions.md."""
REACHED_ERROR = 0.20
"""And so were times to an accuracy, trained in virtual time: docs/results/predicted_accuracy.md."""


def step_between(price: Price) -> tuple[float, float]:
    """Seconds of a step."""
    return (1 - STEP_ERROR) * price.step_seconds, (1 + STEP_ERROR) * price.step_seconds


def waiting_between(price: Price) -> tuple[float, float]:
    """The part of a step in which a node waits: what is off in a step is off in its waiting, not in its work."""
    busy = 1 - price.waiting
    return max(0.0, 1 - busy / (1 - STEP_ERROR)), 1 - busy / (1 + STEP_ERROR)


def between(price: Price, epochs: float, what: str) -> tuple[float, float]:
    """Of so many epochs: `time`, `bytes`, `energy` or `cost`. Assumed epochs may be none, or twice as many."""
    middle = price.total(epochs, what)
    factor = price.candidate.epochs_factor
    step = 0.0 if what == "bytes" else STEP_ERROR
    return middle * (1 - step) / factor, middle * (1 + step) * (2 * factor - 1) / factor


def reached_between(seconds: float) -> tuple[float, float]:
    """Seconds until an accuracy is reached, of a trial run."""
    return (1 - REACHED_ERROR) * seconds, (1 + REACHED_ERROR) * seconds
