"""Values at random positions on the wire, the same positions on all ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from minga.codecs.sparse import SparseCodec
from minga.codecs.stream import Stream

__all__ = ["RandomK"]

_HEADER = 8


@dataclass(frozen=True, kw_only=True)
class RandomK(SparseCodec):
    """k values at positions that all ranks draw alike, so that any collective adds them up (arXiv:1809.07599).

    Positions are start, start + stride, start + 2 stride... around the vector, with a random start, and a random
    stride that has no factor in common with its length: never one twice, each with the same probability, and the
    cost is that of k values, not of the vector. Start and stride are the first 8 bytes of an encoded vector; sums
    don't need them. Without feedback, values are scaled by length / k, so that the mean is right.
    """

    @property
    def linear(self) -> bool:
        return True

    def compress_next(self, vector: Tensor, stream: Stream) -> Tensor:
        encoded = super().compress_next(vector, stream)
        if not self.feedback:
            self._scale(encoded, vector)
        return encoded

    def compress(self, vector: Tensor, stream: Stream) -> Tensor:
        encoded = self.encoded_like(vector, stream)
        if vector.numel():
            encoded[:_HEADER].view(torch.int32).copy_(_start_and_stride(vector.numel(), stream))
            positions, values = self.sent(encoded, vector)
            torch.index_select(vector, 0, positions, out=values)
        return encoded

    def compress_to_mean(
        self, vector: Tensor, ranks: int, stream: Stream, add_up: Callable[[Tensor], None]
    ) -> tuple[Tensor, Tensor]:
        encoded = self.compress(vector, stream)
        if not self.feedback:
            self._scale(encoded, vector)
        values = encoded[_HEADER:].view(vector.dtype)
        add_up(values.div_(ranks))
        # For taking out what was sent, only the positions count.
        return encoded, encoded

    def sent(self, encoded: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        if not like.numel():
            return torch.empty(0, dtype=torch.int64, device=like.device), encoded.view(like.dtype)
        start, stride = encoded[:_HEADER].view(torch.int32).tolist()
        positions = torch.arange(self.values_in(like.numel()), device=like.device)
        return positions.mul_(stride).add_(start).remainder_(like.numel()), encoded[_HEADER:].view(like.dtype)

    def encoded_like(self, vector: Tensor, stream: Stream) -> Tensor:
        count = self.values_in(vector.numel())
        size = _HEADER + count * vector.element_size() if count else 0
        return torch.empty(size, dtype=torch.uint8, device=vector.device)

    def summed_like(self, vector: Tensor, stream: Stream) -> list[Tensor]:
        return [vector.new_empty(self.values_in(vector.numel()))]

    def _scale(self, encoded: Tensor, like: Tensor) -> None:
        if like.numel():
            encoded[_HEADER:].view(like.dtype).mul_(like.numel() / self.values_in(like.numel()))


def _start_and_stride(length: int, stream: Stream) -> Tensor:
    start, stride = torch.randint(length, (2,), generator=stream.shared_generator()).tolist()
    while math.gcd(stride, length) != 1:
        stride += 1
    return torch.tensor([start, stride], dtype=torch.int32)
