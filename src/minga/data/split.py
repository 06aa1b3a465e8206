"""Which sample goes to which part, and to which place in it: every class divided alike, by a fixed seed.

    split = divide(labels, count=9000, fractions=(0.85, 0.02, 0.13), seed=0)
    split.part[17], split.position[17]                      # 0 (train), 4711

Samples lie in a part in shuffled order, so that neighbours on disk are of all classes. Published results depend on
which samples a seed puts where, so the two rules by which samples are drawn stay as they are: `divide` for prepared
sets, `drawn_by_class` for workloads that train on folders of pictures as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minga.data.formats.base import PARTS
from minga.errors import DataError

__all__ = ["Split", "divide", "drawn_by_class", "parse_fractions"]


@dataclass(frozen=True)
class Split:
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
        or not abs(total - (1 if total < 2 else 100)) <= 1e-6  # also where one is NaN
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
) -> Split:
    """`fractions` of each class, or the parts that are `given` where there are no fractions."""
    random = np.random.default_rng(seed)
    if fractions is None:
        assert given is not None
        part = given.astype(np.int8)
    elif in_order:
        part = np.repeat(np.arange(len(PARTS), dtype=np.int8), _shares(count, fractions))
    else:
        owed = np.zeros(len(PARTS))
        all_alike = np.zeros(count, dtype=np.int64) if labels is None else labels
        part = _drawn(all_alike, random.permutation, lambda samples: _shares(samples, fractions, owed))
    position = np.full(count, -1, dtype=np.int64)
    for number in range(len(PARTS)):
        members = np.flatnonzero(part == number)
        position[members] = np.arange(len(members)) if in_order else random.permutation(len(members))
    return Split(part, position)


def drawn_by_class(labels: NDArray[np.int64], fractions: Sequence[float], seed: int) -> NDArray[np.int8]:
    """The part of each sample, as the splits of the theses' benchmarks are drawn.

    Shares are rounded, and the last part takes the rest.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)

    def shares(samples: int) -> NDArray[np.int64]:
        rounded = [round(share * samples) for share in fractions[:-1]]
        return np.array([*rounded, samples - sum(rounded)])

    return _drawn(labels, lambda members: members[torch.randperm(len(members), generator=generator).numpy()], shares)


def _drawn(
    labels: NDArray[np.int64],
    shuffled: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    shares: Callable[[int], NDArray[np.int64]],
) -> NDArray[np.int8]:
    """Class by class, the members of each shuffled and cut into shares."""
    part = np.empty(len(labels), dtype=np.int8)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        sizes = shares(len(members))
        part[shuffled(members)] = np.repeat(np.arange(len(sizes), dtype=np.int8), sizes)
    return part


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
