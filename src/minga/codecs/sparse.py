"""Codecs that send a few of the values as they are, and keep the rest for later."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from minga.base.config import FieldError
from minga.codecs.base import BiasedCodec
from minga.codecs.stream import Stream

__all__ = ["SparseCodec"]


@dataclass(frozen=True, kw_only=True)
class SparseCodec(BiasedCodec):
    """Sends k of the values. What it keeps for later, it keeps exactly: nothing is rounded on the way."""

    faithful: ClassVar[bool] = False

    ratio: float = 0.01
    """Which share of the values is sent, at least one."""

    momentum_correction: bool = False
    """Accumulate momentum before choosing what to send instead of in the optimizer (arXiv:1712.01887)."""

    def check(self) -> None:
        if not 0 < self.ratio <= 1:
            raise FieldError(("ratio",), f"should be above 0 and at most 1, not {self.ratio:g}")
        if self.momentum_correction and not self.feedback:
            raise FieldError(("momentum_correction",), "accumulates what was not sent: it needs feedback=true")

    @property
    def corrects_momentum(self) -> bool:
        return self.momentum_correction

    def values_in(self, length: int) -> int:
        """k: how many values of a vector of this length are sent."""
        # 0.07 * 100 is a little more than 7 in binary; that is no reason to send 8.
        return min(length, math.ceil(self.ratio * length * (1 - 1e-12)))

    @abstractmethod
    def sent(self, encoded: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """Positions and values of what was sent; the values are a part of `encoded`."""

    def decompress(self, encoded: Tensor, into: Tensor, stream: Stream) -> None:
        positions, values = self.sent(encoded, into)
        into.zero_()
        into[positions] = values

    def add_residual(self, vector: Tensor, stream: Stream) -> Tensor:
        if not self.momentum_correction:
            return super().add_residual(vector, stream)
        if stream.velocity is None:
            stream.velocity = vector.clone()
        else:
            stream.velocity.mul_(stream.momentum).add_(vector)
        return super().add_residual(stream.velocity, stream)

    def take_out(self, whole: Tensor, encoded: Tensor, stream: Stream) -> None:
        positions, _ = self.sent(encoded, whole)
        if stream.velocity is not None:
            # What waited has the momentum of all its steps in it: starting anew keeps stale directions from being
            # followed. The paper starts anew wherever something was sent; what did not wait is not stale, and so
            # sending everything in every step is SGD with momentum.
            velocity = stream.velocity[positions]
            stream.velocity[positions] = torch.where(whole[positions] == velocity, velocity, 0)
        whole.index_fill_(0, positions, 0)
