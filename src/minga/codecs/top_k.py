"""The largest values on the wire, with their positions, which are found without sorting."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from minga.base.lazy import Tensor, torch
from minga.codecs.sparse import SparseCodec
from minga.codecs.stream import Stream

__all__ = ["TopK", "largest", "largest_by_sample"]

_SAMPLE = 1 << 15
_PIECE = 1 << 17  # values that are looked at together: they stay in the cache
_SHORT = 1 << 14


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


def largest(vector: Tensor, count: int) -> Tensor:
    """Positions of the `count` values of largest magnitude, ascending."""
    return vector.abs().topk(count, sorted=False).indices.sort().values


def largest_by_sample(vector: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """The same positions (but for the choice among equals), in one pass over a long vector.

    A random sample tells which magnitude about `count` values exceed; only these candidates are compared. The sample
    decides how long it takes, never what is found.
    """
    length = vector.numel()
    if length < _SHORT or count > length // 4:
        return largest(vector, count)
    sample = vector[torch.randint(length, (_SAMPLE,), generator=generator).to(vector.device)].abs()
    expected = _SAMPLE * count / length
    # Four standard deviations more, so that too few candidates are rare.
    rank = math.ceil(expected + 4 * math.sqrt(expected)) + 1
    threshold = float(sample.kthvalue(max(1, _SAMPLE - rank + 1)).values)
    positions = _above(vector, threshold, count)
    if len(positions) < count:
        # Many values may be equal to the threshold: zeros, most of all.
        positions = torch.cat([positions, _equal(vector, threshold, count - len(positions))]).sort().values
    if len(positions) < count:
        return largest(vector, count)
    return _best(vector, positions, count)


def _above(vector: Tensor, threshold: float, count: int) -> Tensor:
    """Positions of all magnitudes above the threshold; of the largest, if these are many more than `count`."""
    found: list[Tensor] = []
    total = 0
    magnitudes = vector.new_empty(_PIECE)
    for start in range(0, vector.numel(), _PIECE):
        piece = vector[start : start + _PIECE]
        hits = _positions_of(torch.abs(piece, out=magnitudes[: len(piece)]) > threshold).add_(start)
        found.append(hits)
        total += len(hits)
        if total > 2 * count + _PIECE:
            best = _best(vector, torch.cat(found), count)
            threshold = float(vector.index_select(0, best).abs_().min())
            found, total = [best], count
    return torch.cat(found)


def _equal(vector: Tensor, magnitude: float, count: int) -> Tensor:
    """Positions of the first `count` values of just this magnitude."""
    found: list[Tensor] = []
    total = 0
    for start in range(0, vector.numel(), _PIECE):
        hits = _positions_of(vector[start : start + _PIECE].abs() == magnitude).add_(start)
        found.append(hits)
        total += len(hits)
        if total >= count:
            break
    return torch.cat(found)[:count]


def _best(vector: Tensor, positions: Tensor, count: int) -> Tensor:
    """Those of the `count` largest magnitudes among some positions, in the order given."""
    magnitudes = vector.index_select(0, positions).abs_()
    least = magnitudes.kthvalue(len(positions) - count + 1).values
    chosen = magnitudes > least
    equal = (magnitudes == least).nonzero().view(-1)
    chosen[equal[: count - int(chosen.sum())]] = True
    return positions[chosen]


def _positions_of(mask: Tensor) -> Tensor:
    """`mask.nonzero()` for masks that are mostly false: looks at eight of them at a time first."""
    if len(mask) % 8:
        return mask.nonzero().view(-1)
    words = mask.view(torch.int64).nonzero().view(-1)
    row, column = mask.view(-1, 8).index_select(0, words).nonzero(as_tuple=True)
    return words[row].mul_(8).add_(column)
