"""Signs on the wire: a bit for each value."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from minga.codecs.blocks import BlockCodec

__all__ = ["Sign"]

# Eight bytes of 0 or 1, read as one integer and multiplied by this, have their bits side by side in the top byte.
_GATHER = 0x0102040810204080


@dataclass(frozen=True, kw_only=True)
class Sign(BlockCodec):
    """One bit for each value, its sign, and the mean size of each block (Karimireddy et al., arXiv:1901.09847).

    Without error feedback, small gradients that disagree with rare large ones win, and training goes the wrong way.
    """

    faithful: ClassVar[bool] = False
    epochs_factor: ClassVar[float] = 1.05
    bits: ClassVar[int] = 1

    def pack(self, rows: Tensor, scales: Tensor, packed: Tensor, generator: torch.Generator) -> None:
        scales.copy_(rows.abs().sum(1).div_(rows.shape[1]))  # a fifth of the time of a norm
        if rows.device.type == "cpu" and rows.dtype != torch.bfloat16:
            # A tenth of the time of the same with torch.
            packed.copy_(torch.from_numpy(np.packbits(np.signbit(rows.numpy()), bitorder="little")))
            return
        negative = torch.signbit(rows.view(-1))
        if len(negative) % 8:
            negative = torch.nn.functional.pad(negative, (0, -len(negative) % 8))
        packed.copy_(negative.view(torch.int64).mul(_GATHER).bitwise_right_shift_(56))

    def unpack(self, packed: Tensor, scales: Tensor, width: int) -> Tensor:
        signs = _signs_of_bytes(scales.device).index_select(0, packed.int()).view(torch.int8)
        return signs[: len(scales) * width].to(scales.dtype).view(-1, width).mul_(scales[:, None])


@functools.cache
def _signs_of_bytes(device: torch.device) -> Tensor:
    """For each byte the eight signs in it, of a byte each, as one integer; the first in the lowest bit."""
    bits = torch.arange(256)[:, None] >> torch.arange(8)
    return (1 - (bits & 1) * 2).to(torch.int8).contiguous().view(torch.int64).view(-1).to(device)
