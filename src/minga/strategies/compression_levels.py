"""The forms that an exchange can have, from the most faithful to the smallest, and which of them fits a network.

    choose(levels, Conditions(step_seconds=0.025, seconds_per_byte=8e-7, hop_seconds=0.001, overhead=0.04, budget=2))

The choice is a function of numbers that all ranks have agreed on, so that all make the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from minga.base.lazy import Tensor
from minga.codecs import Codec, Stream
from minga.comm.probing import usual_cost_of_a_byte

__all__ = ["CompressionLevel", "Conditions", "choose", "worth_measuring"]

# Steps and links are not always as quick as on average: an exchange that would just end in time often doesn't.
_MARGIN = 1.2
# What has not been measured yet is taken for worse than anything that has.
_UNKNOWN = 100.0
# A change of form costs something too, and estimates are noisy: a new one must be clearly better than the one in use.
_CLEARLY = 0.85


@dataclass
class CompressionLevel:
    """One form of an exchange, and what it costs."""

    codec: Codec
    stream: Stream
    trial: Stream
    """For measuring, beside the stream that is in use."""
    bytes: float
    """What a rank sends in an exchange."""
    hops: int
    """Messages that follow one after the other."""
    work_seconds: float
    """Encoding and decoding, with a core to itself."""
    slowdown: float = 2.0
    """How much longer that takes in the middle of training, where caches are full of the model; as the ranks found."""
    weight: float = 1.0
    """How much the error-feedback residual is missed, compared with deltas that were not exchanged yet."""
    residual: float = _UNKNOWN
    """The error-feedback residual after an exchange, relative to the delta exchanged, as the ranks have measured it."""

    def __post_init__(self) -> None:
        if self.codec.faithful:
            self.residual = 0.0

    def measure(self, vector: Tensor, *, first: bool) -> float:
        """The residual after this vector: 0 for nothing, 1 for as much as the vector.

        What is left out is added to the next vector, unless that is the `first` of some: in the long run it is just
        what a form has trouble with that it has to carry. What thin matrices leave out gathers in the directions that
        they don't have, what rounding leaves out cancels in part.
        """
        before = None if first else self.trial.residual
        self.trial.residual = None
        left = self.codec.residual_after(vector if before is None else vector + before, self.trial)
        if left is None:
            return self.residual
        size = float(vector.norm())
        return min(left / size, _UNKNOWN) if size else 0.0

    @property
    def work(self) -> float:
        """Seconds of encoding and decoding in the middle of training."""
        return self.slowdown * self.work_seconds

    def seconds(self, conditions: Conditions) -> float:
        """From the beginning of an exchange to its end."""
        return self.bytes * conditions.seconds_per_byte + self.hops * conditions.hop_seconds + self.work

    def cost(self, conditions: Conditions) -> float:
        """What an exchange takes from computing, in steps."""
        byte = usual_cost_of_a_byte(conditions.seconds_per_byte)
        return (self.work + self.bytes * byte) / conditions.step_seconds

    def late(self, conditions: Conditions) -> int:
        """Steps that are computed while an exchange is under way: whole ones, since it is looked after between them."""
        return math.ceil(_MARGIN * self.seconds(conditions) / conditions.step_seconds)

    def period(self, conditions: Conditions) -> float:
        """The fewest steps between two exchanges, on average, for which they take no more than their share of time."""
        return max(1.0, self.cost(conditions) / conditions.overhead)

    def share(self, conditions: Conditions) -> float:
        """Of computing time, what exchanges take."""
        return self.cost(conditions) / max(self.period(conditions), self.late(conditions))

    def staleness(self, conditions: Conditions, residual: float | None = None) -> float:
        """How many of its last steps a replica computes with while the others don't know of them, on average.

        Those since the last exchange began, and those of the exchange under way, before whose end the next one can't
        begin. What a form leaves out points elsewhere, so their squares add up. In trials with Adam accuracy fell with
        it (benchmarks/staleness.py).
        """
        late = self.late(conditions)
        period = max(self.period(conditions), late)
        missed = self.weight * (self.residual if residual is None else residual)
        return math.hypot(late + (period - 1) / 2, period * missed)


@dataclass(frozen=True)
class Conditions:
    """What an exchange meets with, and what it may take."""

    step_seconds: float
    """A training step of one rank."""
    seconds_per_byte: float
    """Of the link, seen by one rank."""
    hop_seconds: float
    """For a message without content."""
    overhead: float
    """The part of computing time that exchanges may take from it."""
    budget: float
    """Steps in which an exchange should end."""


def choose(levels: Sequence[CompressionLevel], conditions: Conditions, current: int | None = None) -> int:
    """Of the levels whose exchanges end within the budget and bring about the freshest news, the one that costs
    least for it; if none ends in time, the quickest."""
    fitting = _fitting(levels, conditions)
    if not fitting:
        return min(range(len(levels)), key=lambda index: levels[index].seconds(conditions))
    stale = {index: levels[index].staleness(conditions) for index in fitting}
    fresh = [index for index in fitting if _CLEARLY * stale[index] <= min(stale.values())]
    price = {index: stale[index] * levels[index].share(conditions) for index in fresh}
    best = min(fresh, key=lambda index: price[index])
    return current if current in price and _CLEARLY * price[current] <= price[best] else best


def worth_measuring(levels: Sequence[CompressionLevel], conditions: Conditions) -> list[int]:
    """Those that might be the best if they leave little out, or half of what was found before.

    Measuring takes as long as an exchange, so no others are.
    """
    fitting = _fitting(levels, conditions)
    if len(fitting) < 2:
        return []
    freshest = min(levels[index].staleness(conditions) for index in fitting)

    def hopeful(level: CompressionLevel) -> float:
        return level.staleness(conditions, residual=0.0 if level.residual == _UNKNOWN else level.residual / 2)

    return [
        index for index in fitting if not levels[index].codec.faithful and _CLEARLY * hopeful(levels[index]) < freshest
    ]


def _fitting(levels: Sequence[CompressionLevel], conditions: Conditions) -> list[int]:
    return [
        i for i, level in enumerate(levels) if level.seconds(conditions) <= conditions.budget * conditions.step_seconds
    ]
