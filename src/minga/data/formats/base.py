"""Samples in the form that a data set is published in, one at a time, without torch.

A reader knows what classes there are before it reads samples, so that a split can be made first. It must give the same
samples under the same numbers whenever it is opened: several processes read their parts of one data set.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PARTS", "BadSample", "OnePassReader", "PictureShape", "RawSample", "Reader", "kept_form"]

PARTS = ("train", "validation", "test")

RawSample = Mapping[str, NDArray[Any]]
"""Field by field; `inputs` and `targets` for most."""


class BadSample(Exception):
    """This sample can't be used; the message says why."""


@dataclass(frozen=True, kw_only=True)
class PictureShape:
    """How pictures are shaped while they are read."""

    width: int | None = None
    """In pixels; None: as they are, which must be the same for all."""

    height: int | None = None

    grey: bool = False
    """One channel instead of three."""


class Reader(ABC):
    """A data set in its original form."""

    classes: Sequence[str] = ()
    """Names of the classes, by number; none where targets are no classes."""

    labels: NDArray[np.int64] | None = None
    """The class of each sample, where there are classes."""

    given_parts: NDArray[np.int8] | None = None
    """For each sample its part (a number in `PARTS`), where those who made the data set say so; -1: in none."""

    any_order = True
    """Whether samples can be read in any order at the same speed, by several processes."""

    costly = False
    """Whether reading a sample takes so long that several processes are worth their start."""

    in_order = False
    """Whether neighbours belong together, so that parts are cut, not drawn."""

    facts: Mapping[str, Any] = {}
    """What training must know besides: columns, a vocabulary."""

    scale = 1.0
    """What whole numbers of `inputs` are multiplied by to be used: 1/255 for pictures."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, index: int) -> RawSample:
        """One sample; `BadSample` if it can't be used."""

    def learn_from(self, training: NDArray[np.int64]) -> None:  # noqa: B027  (most readers estimate nothing)
        """Estimate what has to be estimated from these samples alone, now that it is known which are to train on."""

    def name_of(self, index: int) -> str:
        """What people call this sample."""
        return f"sample {index}"

    def where(self, index: int) -> str:
        """The same for those who look for it on their disk."""
        return self.name_of(index)

    def part(self, name: str) -> NDArray[np.int64]:
        """The samples that those who made the data set have put into a part; none where they say nothing of parts."""
        return np.flatnonzero([] if self.given_parts is None else self.given_parts == PARTS.index(name))

    def samples(self, indices: Sequence[int]) -> Iterator[RawSample | BadSample]:
        """These samples, one after the other."""
        for index in indices:
            try:
                yield self.read(index)
            except BadSample as bad:
                yield bad


class OnePassReader(Reader):
    """A data set in one file that is read from its beginning on, and need not fit into memory."""

    any_order = False

    @abstractmethod
    def rows(self) -> Iterator[Any]:
        """What is read for each sample, from the first one on."""

    @abstractmethod
    def sample_of(self, index: int, row: Any) -> RawSample:
        """What it becomes; `BadSample` if it can't be used."""

    def read(self, index: int) -> RawSample:
        found = next(self.samples([index]))
        if isinstance(found, BadSample):
            raise found
        return found

    def samples(self, indices: Sequence[int]) -> Iterator[RawSample | BadSample]:
        """In one pass over the file; `indices` must grow."""
        rows = enumerate(self.rows())
        for index in indices:
            row = next((row for number, row in rows if number == index), None)
            if row is None:
                return
            try:
                yield self.sample_of(index, row)
            except BadSample as bad:
                yield bad


def kept_form(name: str, values: NDArray[np.generic], dtype: str, scale: float) -> NDArray[np.generic]:
    """A field of a sample in another type: whole numbers of inputs that become fractions are scaled."""
    if name == "inputs" and np.issubdtype(values.dtype, np.integer) and dtype.startswith("float"):
        return (values.astype(np.float32) * np.float32(scale)).astype(dtype)
    with np.errstate(over="ignore"):  # whoever uses it looks
        return np.asarray(values).astype(dtype)
