"""The forms that an exchange can have, from the most faithful to the smallest, and which of them fits a network.

    choose(rungs, Conditions(step_seconds=0.025, seconds_per_byte=8e-7, hop_seconds=0.001), budget=2, overhead=0.04)

The choice is a function of numbers that all ranks have agreed on, so that all make the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minga.codecs.base import Codec
from minga.codecs.stream import Stream

__all__ = ["Conditions", "Rung", "choose", "rivals"]

# What a byte that is sent and one that is received cost on the core that trains, seen in a laboratory on two cores: on
# a link of 1 Gbit/s, where the kernel moves 64 kB at a time, and on one of 100 Mbit/s, packet by packet. Elsewhere a
# guess.
_FAST_SECONDS, _SLOW_SECONDS = 4e-9, 1.2e-8
_SLOW_LINK = 2e-8
# An exchange should not be so laborious that it comes less often than every so many budgets.
_LONGEST = 3


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
    measurements: int = 0
    """How often it was measured."""

    def measure(self, vector: Tensor) -> float:
        """How much of this vector an exchange would carry: 1 for all of it, 0 for nothing."""
        self.measurements += 1
        arrived = torch.empty_like(vector)
        self.codec.decode(self.codec.encode_once(vector, self.trial), arrived, self.trial)
        size = float(vector.norm())
        return 1 - min(1.0, float(arrived.sub_(vector).norm()) / size) ** 2 if size else 1.0

    def seconds(self, conditions: Conditions) -> float:
        """From the beginning of an exchange to its end."""
        wire = self.bytes * conditions.seconds_per_byte + self.hops * conditions.hop_seconds
        return wire + self.work_seconds

    def period(self, conditions: Conditions, overhead: float) -> int:
        """The fewest steps between two exchanges for which they take no more than their share of computing."""
        byte = _SLOW_SECONDS if conditions.seconds_per_byte > _SLOW_LINK else _FAST_SECONDS
        return max(1, math.ceil((self.work_seconds + self.bytes * byte) / (overhead * conditions.step_seconds)))


@dataclass(frozen=True)
class Conditions:
    """What an exchange meets with."""

    step_seconds: float
    """A training step of one rank."""
    seconds_per_byte: float
    """Of the link, seen by one rank."""
    hop_seconds: float
    """For a message without content."""


def choose(rungs: Sequence[Rung], conditions: Conditions, budget: float, overhead: float) -> int:
    """The most faithful rung whose exchanges end within `budget` steps and can be had often; else the quickest one."""
    fitting = _fitting(rungs, conditions, budget, overhead)
    if fitting:
        return max(fitting, key=lambda index: (rungs[index].codec.faithful, rungs[index].fidelity, -index))
    return min(range(len(rungs)), key=lambda index: rungs[index].seconds(conditions))


def rivals(rungs: Sequence[Rung], conditions: Conditions, budget: float, overhead: float) -> list[int]:
    """Those among which only measuring can decide; it takes as long as an exchange, so nothing else is measured."""
    fitting = _fitting(rungs, conditions, budget, overhead)
    decided = len(fitting) == 1 or any(rungs[index].codec.faithful for index in fitting)
    return [] if decided else fitting


def _fitting(rungs: Sequence[Rung], conditions: Conditions, budget: float, overhead: float) -> list[int]:
    """Of each family the largest that is quick enough."""
    largest: dict[type[Codec], int] = {}
    for index, rung in enumerate(rungs):
        in_time = rung.seconds(conditions) <= budget * conditions.step_seconds
        if in_time and rung.period(conditions, overhead) <= max(1, _LONGEST * budget):
            largest.setdefault(type(rung.codec), index)
    return list(largest.values())
