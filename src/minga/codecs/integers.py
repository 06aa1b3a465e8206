"""Codecs whose values are small integers: a few steps between zero and the largest value of a block."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from minga.codecs.blocks import BlockCodec

__all__ = ["IntegerCodec"]


@dataclass(frozen=True, kw_only=True)
class IntegerCodec(BlockCodec):
    """Integers with a scale for each block (Alistarh et al., arXiv:1610.02132): its largest value has most steps.

    Rounded at random, a value between two steps goes up as often as it is near the upper one, so that errors cancel
    over ranks and steps; to nearest, errors are half as large but always the same.
    """

    steps: ClassVar[int]
    """Of the largest value of a block."""

    rounding: Literal["stochastic", "nearest"] = "stochastic"
    """stochastic: right in the mean. nearest: the smallest error for a single vector."""

    @abstractmethod
    def store(self, integers: Tensor, packed: Tensor) -> None:
        """Fill `packed` with whole numbers, given as floats, from -steps to steps."""

    @abstractmethod
    def restore(self, packed: Tensor, length: int) -> Tensor:
        """The integers that were stored."""

    def pack(self, rows: Tensor, scales: Tensor, packed: Tensor, generator: torch.Generator) -> None:
        steps = rows.abs()
        scales.copy_(steps.amax(1).div_(self.steps))
        # A block of zeros, or so small that 1 / scale is infinite, becomes zeros.
        scales.masked_fill_(scales < torch.finfo(torch.float32).tiny, 0)
        torch.mul(rows, torch.where(scales > 0, 1 / scales, 0).to(rows.dtype)[:, None], out=steps)
        if self.rounding == "stochastic":
            steps.view(-1).add_(_noise(rows.numel(), generator, like=rows))
        # The largest value may come out above that by the last bit of its scale, or by the noise.
        self.store(steps.view(-1).round_().clamp_(-self.steps, self.steps), packed)

    def unpack(self, packed: Tensor, scales: Tensor, width: int) -> Tensor:
        integers = self.restore(packed, len(scales) * width)
        return integers.to(scales.dtype).view(-1, width).mul_(scales[:, None])


def _noise(length: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """Random numbers between -1/2 and 1/2, in steps of 2^-16.

    Four are cut from one 64-bit random number: a third of the time that floats would take.
    """
    drawn = torch.empty(-(-length // 4), dtype=torch.int64).random_(-(1 << 63), None, generator=generator)
    noise = torch.empty(length, dtype=like.dtype, device=like.device).copy_(drawn.view(torch.int16)[:length])
    return noise.add_(0.5).mul_(2**-16)
