"""Which sample goes to which part, and to which place in it: every class divided alike, by a fixed seed.

    plan = divide(labels, count=9000, fractions=(0.85, 0.02, 0.13), seed=0)
    plan.part[17], plan.position[17]                        # 0 (train), 4711

Samples lie in a part in shuffled order, so that neighbours on disk are of all classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minga.data.readers.base import PARTS
from minga.errors import DataError

__all__ = ["Plan", "divide", "parse_fractions"]


@dataclass(frozen=True)
class Plan:
    """For each sample, by its number in the original."""

    part: NDArray[np.int8]
    """A number in `PARTS`; -1: none."""
    position: NDArray[np.int64]
    """In its part."""

    @property
    def counts(self) -> list[int]:
        """Samples of each part."""
        return [int((self.part == number).sum()) for number in range(len(PARTS))]


def parse_fractions(text: str) -> tuple[float, float, float]:
    """`85,2,13` or `0.8,0.2`: train, validation and test, or train and test."""
    try:
        numbers = [float(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    total = sum(numbers)
    if (
        len(numbers) not in (2, 3)
        or min(numbers) < 0
        or not numbers[0]
        or not abs(total - (1 if total < 2 else 100)) <= 1e-6  # also where one is no number
    ):
        raise DataError(f"--split {text!r} should be two or three parts that add up to 100 (or 1), such as 85,2,13")
    train, *others = (number / total for number in numbers)
    return (train, others[0], others[1]) if len(others) == 2 else (train, 0.0, others[0])


def divide(
    labels: NDArray[np.int64] | None,
    *,
    count: int,
    fractions: Sequence[float] | None,
    given: NDArray[np.int8] | None,
    seed: int,
    in_order: bool = False,
) -> Plan:
    """`fractions` of each class, or the parts that are `given` where there are no fractions."""
    random = np.random.default_rng(seed)
    if fractions is None:
        assert given is not None
        part = given.astype(np.int8)
    elif in_order:
        part = np.repeat(np.arange(len(PARTS), dtype=np.int8), _shares(count, fractions))
    else:
        part = np.empty(count, dtype=np.int8)
        owed = np.zeros(len(PARTS))
        for label in [None] if labels is None else np.unique(labels):
            members = np.arange(count) if label is None else np.flatnonzero(labels == label)
            shuffled = random.permutation(members)
            part[shuffled] = np.repeat(np.arange(len(PARTS), dtype=np.int8), _shares(len(members), fractions, owed))
    position = np.full(count, -1, dtype=np.int64)
    for number in range(len(PARTS)):
        members = np.flatnonzero(part == number)
        position[members] = np.arange(len(members)) if in_order else random.permutation(len(members))
    return Plan(part, position)


def _shares(count: int, fractions: Sequence[float], owed: NDArray[np.float64] | None = None) -> NDArray[np.int64]:
    """Whole numbers that add up to `count`, each less than one from its fraction.

    `owed`: what parts have got too little of the classes before; it decides who gets what is left over, and is changed.
    Otherwise the rest of a hundred small classes would all go to the same part.
    """
    owed = np.zeros(len(fractions)) if owed is None else owed
    exact = count * np.asarray(fractions)
    shares = np.floor(exact + 1e-9).astype(np.int64)
    rest = exact - shares
    # A part that has its exact share gets no more; among the others, who is owed most.
    claims = np.where(rest > 1e-9, rest + owed, -np.inf)
    shares[np.argsort(-claims, kind="stable")[: count - int(shares.sum())]] += 1
    owed += exact - shares
    return shares
