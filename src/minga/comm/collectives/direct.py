"""Direct: everybody sends everything to everybody. One hop, for two ranks or for very short vectors."""

from __future__ import annotations

import torch
from torch import Tensor

from minga.comm.transport import Transport, collective

__all__ = ["direct"]


@collective
def direct(comm: Transport, vector: Tensor) -> None:
    """Add up `vector` over all ranks, in place, in the order of ranks. Each rank sends n-1 times its size."""
    vectors = [torch.empty_like(vector) for _ in range(comm.size)]
    vectors[comm.rank].copy_(vector)
    comm.all_gather(vectors)
    vector.copy_(vectors[0])
    for other in vectors[1:]:
        vector.add_(other)
