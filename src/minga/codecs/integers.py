"""Small integers on the wire, a few steps up to the largest value of a block: a quarter or an eighth of float32."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from minga.base.lazy import Tensor, torch
from minga.codecs.blocks import BlockCodec

__all__ = ["Int4", "Int8", "IntegerCodec"]

# Of four bits, which hold no negative numbers: zero is stored as this.
_ZERO = 8


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


def _noise(length: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """Random numbers between -1/2 and 1/2, in steps of 2^-16.

    Four are cut from one 64-bit random number: a third of the time that floats would take.
    """
    drawn = torch.empty(-(-length // 4), dtype=torch.int64).random_(-(1 << 63), None, generator=generator)
    noise = torch.empty(length, dtype=like.dtype, device=like.device).copy_(drawn.view(torch.int16)[:length])
    return noise.add_(0.5).mul_(2**-16)
