"""Direct: everybody sends everything to everybody. One hop, for two ranks or for very short vectors."""

from __future__ import annotations

import torch
from torch import Tensor

from minga.comm.transport import Transport

__all__ = ["direct"]


def direct(comm: Transport, vector: Tensor) -> None:
    """Add up `vector` over all ranks, in place, in the order of ranks. Each rank sends n-1 times its size."""
    own = vector.clone()
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    landing = {rank: torch.empty_like(vector) for rank in others}
    arrivals = [comm.ireceive(landing[rank], rank) for rank in others]
    sends = [comm.isend(own, rank) for rank in others]
    for pending in arrivals:
        pending.wait()
    landing[comm.rank] = own
    vector.copy_(landing[0])
    for rank in range(1, comm.size):
        vector.add_(landing[rank])
    for pending in sends:
        pending.wait()
