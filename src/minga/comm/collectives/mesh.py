"""Mesh: every rank talks to every other directly. Two hops whatever n is, for fast switches and few ranks."""

from __future__ import annotations

import torch
from torch import Tensor

from minga.comm.transport import Transport, collective

__all__ = ["mesh"]


@collective
def mesh(comm: Transport, vector: Tensor) -> None:
    """Add up `vector` over all ranks, in place.

    Rank j collects chunk j from everybody, adds it up in the order of ranks, and sends the sum to everybody.
    """
    rank = comm.rank
    others = [(rank + shift) % comm.size for shift in range(1, comm.size)]
    chunks = vector.tensor_split(comm.size)
    own = chunks[rank]
    gathered = torch.empty((comm.size, own.numel()), dtype=vector.dtype, device=vector.device)
    arrivals = [comm.ireceive(gathered[other], other) for other in others]
    sends = [comm.isend(chunks[other], other) for other in others]
    gathered[rank].copy_(own)
    for pending in arrivals + sends:
        pending.wait()
    own.copy_(gathered[0])
    for row in gathered[1:]:
        own.add_(row)
    arrivals = [comm.ireceive(chunks[other], other) for other in others]
    sends = [comm.isend(own, other) for other in others]
    for pending in arrivals + sends:
        pending.wait()
