"""4-bit integers on the wire: an eighth of the bytes of float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from minga.codecs.integers import IntegerCodec

__all__ = ["Int4"]

# Bits hold no negative numbers: zero is stored as this.
_ZERO = 8


@dataclass(frozen=True, kw_only=True)
class Int4(IntegerCodec):
    """4-bit integers with a scale for each block and error feedback; enough for deltas (arXiv:2501.18512).

    Blocks are small, since there are only seven steps up to the largest value: of a thousand values one is so large
    that most of the others would become zero.
    """

    faithful: ClassVar[bool] = False
    bits: ClassVar[int] = 4
    steps: ClassVar[int] = 7

    block: int = 256
    """Values that share a scale, a multiple of 8."""

    rounding: Literal["stochastic", "nearest"] = "nearest"
    """nearest: the smallest error, which error feedback makes good. stochastic: right in the mean also without it."""

    def store(self, integers: Tensor, packed: Tensor) -> None:
        # The first half in the low bits, the second in the high ones: whole runs, which a core does many at a time.
        length, half = len(integers), len(packed)
        shifted = integers.add_(_ZERO).to(torch.uint8)
        packed.copy_(shifted[:half])
        packed[: length - half].bitwise_or_(shifted[half:].bitwise_left_shift_(4))

    def restore(self, packed: Tensor, length: int) -> Tensor:
        half = len(packed)
        integers = torch.empty(2 * half, dtype=torch.uint8, device=packed.device)
        torch.bitwise_and(packed, 15, out=integers[:half])
        torch.bitwise_right_shift(packed, 4, out=integers[half:])
        return integers[:length].view(torch.int8).sub_(_ZERO)
