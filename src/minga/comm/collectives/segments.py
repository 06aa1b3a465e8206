"""Cutting a vector into pieces that travel one behind the other, so that adding overlaps with sending."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

__all__ = ["segments"]

# Below this size a message's fixed cost outweighs what a second piece could hide; above eight pieces
# nothing more is gained (benchmarks/ring_against_gloo.py).
_SEGMENT_BYTES = 1 << 20
_MOST_SEGMENTS = 8


def segments(vector: Tensor) -> Sequence[Tensor]:
    """Views that cover `vector` in order; the same cut on every rank, since only the size decides."""
    count = min(_MOST_SEGMENTS, max(1, vector.nbytes // _SEGMENT_BYTES))
    return vector.tensor_split(count)
