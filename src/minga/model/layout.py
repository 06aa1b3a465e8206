"""Where each layer's parameters lie in the flat vector, and the buckets that it is sent in."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from minga.base.lazy import Tensor, torch
from minga.comm.transport import Pending

__all__ = ["Bucket", "Layout", "Place"]


@dataclass(frozen=True)
class Place:
    """One parameter's part of the flat vector."""

    name: str
    shape: torch.Size
    start: int
    stop: int


@dataclass(frozen=True)
class Layout:
    """The parameters in the order of the flat vector."""

    places: tuple[Place, ...]

    @classmethod
    def of(cls, named_tensors: Iterable[tuple[str, Tensor]]) -> Layout:
        places: list[Place] = []
        at = 0
        for name, tensor in named_tensors:
            places.append(Place(name, tensor.shape, at, at + tensor.numel()))
            at += tensor.numel()
        return cls(tuple(places))

    @property
    def length(self) -> int:
        return self.places[-1].stop if self.places else 0

    def shapes(self, start: int, stop: int) -> list[tuple[int, ...]]:
        """The layers between two positions of the vector.

        Of one that is cut by them, whole rows stay a matrix, so that codecs for matrices still have one; what is left
        of the rows at its ends counts as one dimension.
        """
        shapes: list[tuple[int, ...]] = []
        for place in self.places:
            low, high = max(place.start, start), min(place.stop, stop)
            if low < high:
                shapes += _cut_layer(tuple(place.shape), low - place.start, high - place.start)
        return shapes

    def cut(self, parts: int, *, between_layers: bool = True) -> list[tuple[int, int]]:
        """Start and stop of about equal parts of the vector; between layers, some may be empty where these are few."""
        marks = [self.length * part // parts for part in range(parts + 1)]
        if between_layers:
            borders = [0, *(place.stop for place in self.places)]
            marks = [min(borders, key=lambda border, mark=mark: abs(border - mark)) for mark in marks]  # type: ignore[misc]
        return list(itertools.pairwise(marks))

    def buckets(self, elements: int) -> list[range]:
        """Ranges of indices into `places`, of about `elements` each, from the last layer to the first.

        Backward passes run from the last layer to the first, so that is the order in which they are ready.
        """
        cuts: list[range] = []
        end = len(self.places)
        while end > 0:
            start = end - 1
            while start > 0 and self.places[end - 1].stop - self.places[start - 1].start <= elements:
                start -= 1
            cuts.append(range(start, end))
            end = start
        return cuts


@dataclass
class Bucket:
    """A part of the gradient vector that is exchanged as soon as backward has filled it."""

    index: int
    gradients: Tensor
    places: tuple[Place, ...]
    filled: set[str] = field(default_factory=set)
    """The parameters that have their gradient in this step."""
    pending: Pending | None = field(default=None, repr=False)
    """The exchange under way, for the strategy's use."""

    @property
    def complete(self) -> bool:
        return len(self.filled) == len(self.places)


def _cut_layer(shape: tuple[int, ...], low: int, high: int) -> list[tuple[int, ...]]:
    """A layer's elements from `low` to `high` as layers of their own."""
    if (low, high) == (0, math.prod(shape)):
        return [shape]
    row = math.prod(shape[1:])
    first, last = -(-low // row), high // row  # the whole rows
    if len(shape) < 2 or first >= last:
        return [(high - low,)]
    parts = [(first * row - low,), (last - first, *shape[1:]), (high - last * row,)]
    return [part for part in parts if math.prod(part)]
