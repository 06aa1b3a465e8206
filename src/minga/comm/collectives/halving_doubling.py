"""Recursive halving and doubling: bandwidth-optimal in 2 log2(n) hops (Thakur et al., 2005)."""

from __future__ import annotations

import torch
from torch import Tensor

from minga.comm.transport import Transport, collective

__all__ = ["halving_doubling"]


@collective
def halving_doubling(comm: Transport, vector: Tensor) -> None:
    """Add up `vector` over all ranks, in place.

    Partners exchange halves, then quarters, ... until each owns the sum of one part; the way back collects
    the parts. When n is not a power of two, the ranks beyond the largest one first hand their vector to a
    partner and get the result from it at the end.
    """
    core = 1 << (comm.size.bit_length() - 1)
    rank, extra = comm.rank, comm.size - core
    if rank >= core:
        comm.send(vector, rank - core)
        comm.receive(vector, rank - core)
        return
    if rank < extra:
        buffer = torch.empty_like(vector)
        comm.receive(buffer, rank + core)
        vector.add_(buffer)
    _among_power_of_two(comm, vector, core)
    if rank < extra:
        comm.send(vector, rank + core)


def _among_power_of_two(comm: Transport, vector: Tensor, core: int) -> None:
    buffer = torch.empty((vector.numel() + 1) // 2, dtype=vector.dtype, device=vector.device)
    steps: list[tuple[int, Tensor, Tensor]] = []  # partner, the part kept, the part given away
    part, distance = vector, core // 2
    while distance:
        partner = comm.rank ^ distance
        middle = (part.numel() + 1) // 2
        lower, upper = part[:middle], part[middle:]
        kept, given = (upper, lower) if comm.rank & distance else (lower, upper)
        landing = buffer[: kept.numel()]
        arrival = comm.ireceive(landing, partner)
        departure = comm.isend(given, partner)
        arrival.wait()
        kept.add_(landing)
        departure.wait()
        steps.append((partner, kept, given))
        part, distance = kept, distance // 2
    for partner, kept, given in reversed(steps):
        arrival = comm.ireceive(given, partner)
        departure = comm.isend(kept, partner)
        arrival.wait()
        departure.wait()
