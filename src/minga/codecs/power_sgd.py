"""Layers as products of two thin matrices on the wire."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from minga.base.config import FieldError
from minga.base.lazy import Tensor, torch
from minga.codecs.base import BiasedCodec
from minga.codecs.integers import Int8
from minga.codecs.stream import Stream

__all__ = ["PowerSGD"]

# Thin matrices lie column after column, and columns are of very different size: short blocks have scales of their own.
_BYTES = Int8(block=128, rounding="nearest")


@dataclass(frozen=True, kw_only=True)
class PowerSGD(BiasedCodec):
    """Each layer's matrix as a product of two thin ones, by a step of power iteration (arXiv:1905.13727).

    M is about P Q': P = M Q with the Q of the last vector, made orthonormal, then Q = M' P. Both are linear in M, so
    all ranks' mean is found with two sums. Layers of one dimension, and those that are too small for it to pay, travel
    as they are. On the wire: all P, those layers, all Q. Ranks agree to the last bit as long as their processors
    multiply alike.
    """

    faithful: ClassVar[bool] = False

    rank: int = 2
    """Columns of the thin matrices."""

    factors: Literal["same", "int8"] = "same"
    """The thin matrices' form on the wire. int8: a quarter of the bytes; every rank then has directions of its own,
    which are sent to everybody, in one hop instead of two."""

    def check(self) -> None:
        if self.rank < 1:
            raise FieldError(("rank",), f"should be at least 1, not {self.rank}")

    def compress(self, vector: Tensor, stream: Stream) -> Tensor:
        given, _ = self.compress_to_mean(vector, 1, stream, lambda summed: None)
        return given if self.linear else _BYTES.compress(given, stream)

    @property
    def linear(self) -> bool:
        return self.factors == "same"

    def compress_to_mean(
        self, vector: Tensor, ranks: int, stream: Stream, add_up: Callable[[Tensor], None]
    ) -> tuple[Tensor, Tensor]:
        plan = _plan(stream.shapes, self.rank)
        given = vector.new_empty(plan.length)
        layers = torch.split(vector, plan.sizes)
        matrices = plan.matrices(layers)
        if plan.others:
            torch.cat([layers[index] for index in plan.others], out=plan.rest(given))
        lefts = plan.lefts(given)
        directions = self._last_directions(vector, stream, plan.length - plan.cut)
        for matrix, left, right in zip(matrices, lefts, plan.thin(directions), strict=True):
            torch.mm(right, matrix.t(), out=left)
        mean = given if ranks == 1 else given / ranks
        first, second = mean[: plan.cut], mean[plan.cut :]
        if len(first):
            add_up(first)
        for left, shared in zip(lefts, plan.lefts(mean), strict=True):
            left.copy_(_orthonormal(shared.t()).t())
            shared.copy_(left)
        for matrix, left, right in zip(matrices, lefts, plan.rights(given), strict=True):
            torch.mm(left, matrix, out=right)
        if ranks > 1 and len(second):
            add_up(torch.div(given[plan.cut :], ranks, out=second))
        # Only directions count: sizes would be squared in the next P, out of range for very small and large values.
        size = float(second.abs().max()) if len(second) else 0.0
        stream.memory["directions"] = second / size if size > 0 else directions
        return given, mean

    def take_out(self, whole: Tensor, encoded: Tensor, stream: Stream) -> None:
        plan = _plan(stream.shapes, self.rank)
        encoded = self._floats(encoded, whole, plan, stream)
        if not bool(torch.isfinite(encoded.sum())):
            return  # another rank's vector was non-finite, so nobody's has arrived: all of it stays in the residual
        layers = torch.split(whole, plan.sizes)
        for matrix, left, right in zip(plan.matrices(layers), plan.lefts(encoded), plan.rights(encoded), strict=True):
            matrix.addmm_(left.t(), right, alpha=-1)
        for index, values in plan.values(encoded):
            layers[index].sub_(values)

    def decompress(self, encoded: Tensor, into: Tensor, stream: Stream) -> None:
        plan = _plan(stream.shapes, self.rank)
        encoded = self._floats(encoded, into, plan, stream)
        layers = torch.split(into, plan.sizes)
        for matrix, left, right in zip(plan.matrices(layers), plan.lefts(encoded), plan.rights(encoded), strict=True):
            torch.mm(left.t(), right, out=matrix)
        for index, values in plan.values(encoded):
            layers[index].copy_(values)

    def encoded_like(self, vector: Tensor, stream: Stream) -> Tensor:
        thin = vector.new_empty(_plan(stream.shapes, self.rank).length)
        return thin if self.linear else _BYTES.encoded_like(thin, stream)

    def summed_like(self, vector: Tensor, stream: Stream) -> list[Tensor]:
        plan = _plan(stream.shapes, self.rank)
        return [vector.new_empty(length) for length in (plan.cut, plan.length - plan.cut) if length]

    def _floats(self, encoded: Tensor, like: Tensor, plan: _Plan, stream: Stream) -> Tensor:
        if self.linear:
            return encoded
        thin = like.new_empty(plan.length)
        _BYTES.decompress(encoded, thin, stream)
        return thin

    def _last_directions(self, vector: Tensor, stream: Stream, length: int) -> Tensor:
        """All Q of the vector before; random ones to begin with, the same on all ranks."""
        known: Tensor | None = stream.memory.get("directions")
        if known is None:
            known = torch.randn(length, generator=stream.shared_generator(), dtype=torch.float64).to(vector)
        return known


def _orthonormal(matrix: Tensor) -> Tensor:
    """Householder's way: directions that a matrix lacks are filled up, where Gram-Schmidt would divide by zero."""
    wide = matrix.float() if matrix.element_size() < 4 else matrix  # it can't be done in 16 bits
    columns: Tensor = torch.linalg.qr(wide).Q
    return columns


@dataclass(frozen=True)
class _Plan:
    """Which layers are compressed, and where everything lies in an encoded vector: all P, the rest, all Q."""

    sizes: list[int]
    """Of all layers."""
    compressed: list[tuple[int, int, int]]
    """Index, rows and columns of the layers that are."""
    others: list[int]
    """Indices of the layers that travel as they are."""
    rank: int

    @functools.cached_property
    def middle(self) -> int:
        return self.rank * sum(rows for _, rows, _ in self.compressed)

    @functools.cached_property
    def cut(self) -> int:
        """Where the second sum begins."""
        return self.middle + sum(self.sizes[index] for index in self.others)

    @functools.cached_property
    def length(self) -> int:
        return self.cut + self.rank * sum(columns for _, _, columns in self.compressed)

    def matrices(self, layers: tuple[Tensor, ...]) -> list[Tensor]:
        return [layers[index].view(rows, columns) for index, rows, columns in self.compressed]

    # Thin matrices lie transposed, long rows one after the other: products with them take a tenth of the time.

    def lefts(self, encoded: Tensor) -> list[Tensor]:
        """Each P."""
        parts = torch.split(encoded[: self.middle], [self.rank * rows for _, rows, _ in self.compressed] or [0])
        return [part.view(self.rank, -1) for part in parts[: len(self.compressed)]]

    def rest(self, encoded: Tensor) -> Tensor:
        return encoded[self.middle : self.cut]

    def values(self, encoded: Tensor) -> list[tuple[int, Tensor]]:
        """Index and values of each layer that travels as it is."""
        parts = torch.split(self.rest(encoded), [self.sizes[index] for index in self.others] or [0])
        return list(zip(self.others, parts, strict=False))  # without others: one part that is empty

    def rights(self, encoded: Tensor) -> list[Tensor]:
        """Each Q."""
        return self.thin(encoded[self.cut :])

    def thin(self, second: Tensor) -> list[Tensor]:
        """Each Q in the part of an encoded vector that has them all."""
        parts = torch.split(second, [self.rank * columns for _, _, columns in self.compressed] or [0])
        return [part.view(self.rank, -1) for part in parts[: len(self.compressed)]]


@functools.lru_cache(maxsize=1024)
def _plan(shapes: tuple[tuple[int, ...], ...], rank: int) -> _Plan:
    sizes, compressed, others = [], [], []
    for index, shape in enumerate(shapes):
        rows, columns = (shape[0], math.prod(shape[1:])) if shape else (1, 1)  # outputs by the rest
        sizes.append(rows * columns)
        if rank * (rows + columns) < rows * columns:
            compressed.append((index, rows, columns))
        else:
            others.append(index)
    return _Plan(sizes, compressed, others, rank)
