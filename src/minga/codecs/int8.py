"""8-bit integers on the wire: a quarter of the bytes of float32."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from minga.codecs.blocks import BlockCodec

__all__ = ["Int8"]


@dataclass(frozen=True, kw_only=True)
class Int8(BlockCodec):
    """8-bit integers with a scale for each block, rounded at random so that the mean is right (arXiv:1610.02132).

    The largest value of a block becomes 127. A value between two steps is rounded up as often as it is near the upper
    one, so that errors cancel over ranks and steps; to nearest, they are half as large but always the same.
    """

    biased: ClassVar[bool] = False
    bits: ClassVar[int] = 8

    feedback: bool = False
    """Add what rounding changed to the next vector; useful with rounding=nearest."""

    rounding: Literal["stochastic", "nearest"] = "stochastic"
    """stochastic: right in the mean. nearest: the smallest error for a single vector."""

    def pack(self, rows: Tensor, scales: Tensor, packed: Tensor, generator: torch.Generator) -> None:
        steps = rows.abs()
        scales.copy_(steps.amax(1).div_(127))
        # A block of zeros, or so small that 1 / scale is no number, becomes zeros.
        scales.masked_fill_(scales < torch.finfo(torch.float32).tiny, 0)
        torch.mul(rows, torch.where(scales > 0, 1 / scales, 0).to(rows.dtype)[:, None], out=steps)
        if self.rounding == "stochastic":
            steps.view(-1).add_(_noise(rows.numel(), generator, like=rows))
        # The largest value may come out above 127 by the last bit of its scale, or by the noise.
        packed.view(torch.int8).copy_(steps.view(-1).round_().clamp_(-127, 127))

    def unpack(self, packed: Tensor, scales: Tensor, width: int) -> Tensor:
        return packed.view(torch.int8).to(scales.dtype).view(-1, width).mul_(scales[:, None])


def _noise(length: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """Random numbers between -1/2 and 1/2, in steps of 2^-16.

    Four are cut from one 64-bit random number: a third of the time that floats would take.
    """
    drawn = torch.empty(-(-length // 4), dtype=torch.int64).random_(-(1 << 63), None, generator=generator)
    noise = torch.empty(length, dtype=like.dtype, device=like.device).copy_(drawn.view(torch.int16)[:length])
    return noise.add_(0.5).mul_(2**-16)
