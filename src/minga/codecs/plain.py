"""No compression: values travel as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from minga.codecs.base import Codec
from minga.codecs.stream import Stream

__all__ = ["Plain"]


@dataclass(frozen=True, kw_only=True)
class Plain(Codec):
    """Values travel as they are."""

    changes_form: ClassVar[bool] = False

    @property
    def linear(self) -> bool:
        return True

    def compress(self, vector: Tensor, stream: Stream) -> Tensor:
        return vector

    def decompress(self, encoded: Tensor, into: Tensor, stream: Stream) -> None:
        if encoded is not into:
            into.copy_(encoded)

    def encoded_like(self, vector: Tensor, stream: Stream) -> Tensor:
        return torch.empty_like(vector)
