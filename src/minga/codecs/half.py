"""16-bit floats on the wire: half the bytes of float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from minga.codecs.base import Codec
from minga.codecs.stream import Stream

__all__ = ["BFloat16", "Half"]


@dataclass(frozen=True, kw_only=True)
class Half(Codec):
    """IEEE 16-bit floats on the wire: 11 bits of precision, values up to 65,504."""

    dtype: ClassVar[torch.dtype] = torch.float16

    @property
    def linear(self) -> bool:
        return True

    def compress(self, vector: Tensor, stream: Stream) -> Tensor:
        return vector.to(self.dtype)

    def decompress(self, encoded: Tensor, into: Tensor, stream: Stream) -> None:
        into.copy_(encoded)

    def encoded_like(self, vector: Tensor, stream: Stream) -> Tensor:
        return torch.empty_like(vector, dtype=self.dtype)


@dataclass(frozen=True, kw_only=True)
class BFloat16(Half):
    """Brain floats on the wire: 8 bits of precision, the range of float32."""

    dtype: ClassVar[torch.dtype] = torch.bfloat16
