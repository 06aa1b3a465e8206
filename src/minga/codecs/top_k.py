"""The largest values on the wire, with their positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from minga.codecs.selection import largest, largest_by_sample
from minga.codecs.sparse import SparseCodec
from minga.codecs.stream import Stream

__all__ = ["TopK"]


@dataclass(frozen=True, kw_only=True)
class TopK(SparseCodec):
    """The k values of largest magnitude and where they are (Aji & Heafield, arXiv:1704.05021).

    With momentum correction it is Deep Gradient Compression (Lin et al., arXiv:1712.01887).
    """

    epochs_factor: ClassVar[float] = 1.05

    selection: Literal["sampled", "exact"] = "sampled"
    """sampled: compare only what a random sample shows to be large. exact: torch.topk. Both find the largest."""

    def compress(self, vector: Tensor, stream: Stream) -> Tensor:
        encoded = self.encoded_like(vector, stream)
        positions, values = self._parts(encoded, vector)
        if self.selection == "sampled":
            chosen = largest_by_sample(vector, len(values), stream.own_generator())
        else:
            chosen = largest(vector, len(values))
        positions.copy_(chosen)
        torch.index_select(vector, 0, chosen, out=values)
        return encoded

    def sent(self, encoded: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        positions, values = self._parts(encoded, like)
        return positions.long(), values

    def encoded_like(self, vector: Tensor, stream: Stream) -> Tensor:
        count = self.values_in(vector.numel())
        return torch.empty(count * (vector.element_size() + 4), dtype=torch.uint8, device=vector.device)

    def _parts(self, encoded: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        # The wider of the two comes first, so that both are aligned.
        count = self.values_in(like.numel())
        if like.element_size() < 4:
            return encoded[: 4 * count].view(torch.int32), encoded[4 * count :].view(like.dtype)
        cut = count * like.element_size()
        return encoded[cut:].view(torch.int32), encoded[:cut].view(like.dtype)
