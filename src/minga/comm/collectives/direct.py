"""The two that need no algorithm: what the backend brings, and everybody sending everything to everybody."""

from __future__ import annotations

from minga.base.lazy import Tensor, torch
from minga.comm.transport import Transport, collective

__all__ = ["direct", "native"]


def native(comm: Transport, vector: Tensor) -> None:
    """Add up `vector` over all ranks, in place, with what gloo or NCCL brings: what others are measured against."""
    comm.all_reduce(vector).wait()


@collective
def direct(comm: Transport, vector: Tensor) -> None:
    """Add up `vector` over all ranks, in place, in the order of ranks. Each rank sends n-1 times its size.

    One hop, for two ranks or for very short vectors.
    """
    vectors = [torch.empty_like(vector) for _ in range(comm.size)]
    vectors[comm.rank].copy_(vector)
    comm.all_gather(vectors)
    vector.copy_(vectors[0])
    for other in vectors[1:]:
        vector.add_(other)
