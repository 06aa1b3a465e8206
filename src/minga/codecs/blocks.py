"""Codecs that cut a vector into blocks, each with a scale of its own and a few bits for every value."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from minga.base.config import FieldError
from minga.codecs.base import BiasedCodec
from minga.codecs.stream import Stream

__all__ = ["BlockCodec"]

# Work goes through pieces of this many values, so that what lies between two operations stays in the cache.
_PIECE = 1 << 17


@dataclass(frozen=True, kw_only=True)
class BlockCodec(BiasedCodec):
    """On the wire: a float32 scale for each block, then the values' bits."""

    bits: ClassVar[int]
    """Bits of each value."""

    block: int = 1024
    """Values that share a scale, a multiple of 8."""

    def check(self) -> None:
        if self.block < 8 or self.block % 8:
            nearest = max(8, round(self.block / 8) * 8)
            raise FieldError(("block",), f"should be a multiple of 8, such as {nearest}, not {self.block}")

    @abstractmethod
    def pack(self, rows: Tensor, scales: Tensor, packed: Tensor, generator: torch.Generator) -> None:
        """Fill `scales` and `packed` for blocks, one in each row."""

    @abstractmethod
    def unpack(self, packed: Tensor, scales: Tensor, width: int) -> Tensor:
        """The values of blocks, one in each row; of any float type."""

    def compress(self, vector: Tensor, stream: Stream) -> Tensor:
        encoded = self.encoded_like(vector, stream)
        generator = stream.own_generator()
        for piece, width, scales, packed in self._pieces(encoded, vector):
            self.pack(piece.view(-1, width), scales, packed, generator)
        return encoded

    def decompress(self, encoded: Tensor, into: Tensor, stream: Stream) -> None:
        for piece, width, scales, packed in self._pieces(encoded, into):
            piece.view(-1, width).copy_(self.unpack(packed, scales.to(into.dtype), width))

    def take_out(self, whole: Tensor, encoded: Tensor, stream: Stream) -> None:
        for piece, width, scales, packed in self._pieces(encoded, whole):
            piece.view(-1, width).sub_(self.unpack(packed, scales.to(whole.dtype), width))

    def encoded_like(self, vector: Tensor, stream: Stream) -> Tensor:
        length = vector.numel()
        scales = -(-length // self.block)
        return torch.empty(4 * scales + -(-length * self.bits // 8), dtype=torch.uint8, device=vector.device)

    def _pieces(self, encoded: Tensor, vector: Tensor) -> Iterator[tuple[Tensor, int, Tensor, Tensor]]:
        """A piece of the vector, the length of its blocks, their scales and their bits; the last block may be short."""
        length = vector.numel()
        blocks = -(-length // self.block)
        all_scales, all_packed = encoded[: 4 * blocks].view(torch.float32), encoded[4 * blocks :]
        step = max(1, _PIECE // self.block) * self.block
        whole = length - length % self.block
        cuts = [(start, min(start + step, whole), self.block) for start in range(0, whole, step)]
        if whole < length:
            cuts.append((whole, length, length - whole))
        for start, stop, width in cuts:
            scales = all_scales[start // self.block : -(-stop // self.block)]
            packed = all_packed[start * self.bits // 8 : -(-stop * self.bits // 8)]
            yield vector[start:stop], width, scales, packed
