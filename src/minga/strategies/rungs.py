"""The forms that an exchange can have, from the most faithful to the smallest, and which of them fits a network.

    choose(rungs, Conditions(step_seconds=0.025, seconds_per_byte=8e-7, hop_seconds=0.001), budget=2, overhead=0.04)

The choice is a function of numbers that all ranks have agreed on, so that all make the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from minga.codecs.base import Codec
from minga.codecs.stream import Stream
from minga.comm.probing import usual_cost_of_a_byte

__all__ = ["Conditions", "Rung", "choose", "worth_measuring"]

# What carries nothing at all would be infinitely late.
_LEAST_FIDELITY = 0.01
# A change of form costs something too, and estimates are noisy: a new one must be clearly better than the one in use.
_CLEARLY = 0.85


@dataclass
class Rung:
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
    fidelity: float = 0.0
    """How much of a movement one exchange carries, 0 to 1, as the ranks have found it."""

    def __post_init__(self) -> None:
        if self.codec.faithful:
            self.fidelity = 1.0

    def measure(self, vector: Tensor, *, first: bool) -> float:
        """How much of this vector an exchange would carry: 1 for all of it, 0 for nothing.

        What is left out is added to the next vector, unless that is the `first` of some: in the long run it is just
        what a form has trouble with that it has to carry.
        """
        if vector.is_meta:  # a simulation by sizes: nothing to measure
            return self.fidelity
        before = None if first else self.trial.residual
        self.trial.residual = None
        whole = vector if before is None else vector + before
        self.codec.encode(whole, self.trial)
        size, left = float(whole.norm()), self.trial.residual
        return 1 - min(1.0, float(left.norm()) / size) if size and left is not None else 1.0

    def seconds(self, conditions: Conditions) -> float:
        """From the beginning of an exchange to its end."""
        wire = self.bytes * conditions.seconds_per_byte + self.hops * conditions.hop_seconds
        return wire + conditions.labour * self.work_seconds

    def period(self, conditions: Conditions, overhead: float) -> float:
        """The fewest steps between two exchanges, on average, for which they take no more than their share of time."""
        byte = usual_cost_of_a_byte(conditions.seconds_per_byte)
        work = conditions.labour * self.work_seconds
        return max(1.0, (work + self.bytes * byte) / (overhead * conditions.step_seconds))

    def age(self, conditions: Conditions, overhead: float, fidelity: float | None = None) -> float:
        """How old, in steps, what a replica has learnt is on average when the others have it.

        It waits for the next exchange, half a period on average; a form that carries the part f of what there is leaves
        the rest to later ones, 1/f - 1 periods more; and an exchange takes a while.
        """
        carried = max(self.fidelity if fidelity is None else fidelity, _LEAST_FIDELITY)
        waiting = self.period(conditions, overhead) * (1 / carried - 0.5)
        return waiting + self.seconds(conditions) / conditions.step_seconds


@dataclass(frozen=True)
class Conditions:
    """What an exchange meets with."""

    step_seconds: float
    """A training step of one rank."""
    seconds_per_byte: float
    """Of the link, seen by one rank."""
    hop_seconds: float
    """For a message without content."""
    labour: float = 1.0
    """How much longer work takes in the middle of training than alone: caches are full of the model."""


def choose(
    rungs: Sequence[Rung], conditions: Conditions, budget: float, overhead: float, current: int | None = None
) -> int:
    """The rung that brings the freshest news, of those whose exchanges end within `budget` steps; else the quickest."""
    fitting = _fitting(rungs, conditions, budget)
    if fitting:
        ages = {index: rungs[index].age(conditions, overhead) for index in fitting}
        freshest = min(ages, key=lambda index: ages[index])
        return current if current in ages and ages[freshest] > _CLEARLY * ages[current] else freshest
    return min(range(len(rungs)), key=lambda index: rungs[index].seconds(conditions))


def worth_measuring(rungs: Sequence[Rung], conditions: Conditions, budget: float, overhead: float) -> list[int]:
    """Those that might be the best if they carry enough. Measuring takes as long as an exchange, so no others are."""
    fitting = _fitting(rungs, conditions, budget)
    if len(fitting) < 2:
        return []
    freshest = min(rungs[index].age(conditions, overhead) for index in fitting)
    return [
        index
        for index in fitting
        if not rungs[index].codec.faithful and rungs[index].age(conditions, overhead, fidelity=1.0) < freshest
    ]


def _fitting(rungs: Sequence[Rung], conditions: Conditions, budget: float) -> list[int]:
    return [i for i, rung in enumerate(rungs) if rung.seconds(conditions) <= budget * conditions.step_seconds]
