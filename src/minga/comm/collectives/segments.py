"""Cutting a vector into pieces that travel one behind the other, so that adding overlaps with sending."""

from __future__ import annotations

from collections.abc import Sequence

from minga.base.lazy import Tensor

__all__ = ["SEGMENT_BYTES", "segments"]

# Small enough for adding to overlap with sending; below it, a message's fixed cost
# outweighs what a second piece could hide (benchmarks/ring_against_gloo.py).
SEGMENT_BYTES = 4 << 20


def segments(vector: Tensor) -> Sequence[Tensor]:
    """Views that cover `vector` in order; the same cut on every rank, since only the size decides."""
    return vector.tensor_split(max(1, -(-vector.nbytes // SEGMENT_BYTES)))
