"""8-bit integers on the wire: a quarter of the bytes of float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from minga.codecs.integers import IntegerCodec

__all__ = ["Int8"]


@dataclass(frozen=True, kw_only=True)
class Int8(IntegerCodec):
    """8-bit integers with a scale for each block, rounded at random so that the mean is right (arXiv:1610.02132)."""

    biased: ClassVar[bool] = False
    epochs_factor: ClassVar[float] = 1.0
    bits: ClassVar[int] = 8
    steps: ClassVar[int] = 127

    feedback: bool = False
    """Add what rounding changed to the next vector; useful with rounding=nearest."""

    def store(self, integers: Tensor, packed: Tensor) -> None:
        packed.view(torch.int8).copy_(integers)

    def restore(self, packed: Tensor, length: int) -> Tensor:
        return packed.view(torch.int8)
