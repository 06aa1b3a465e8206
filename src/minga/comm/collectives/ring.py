"""Ring all-reduce: bandwidth-optimal, 2 (n-1) hops (Patarasuk & Yuan, 2009)."""

from __future__ import annotations

import torch
from torch import Tensor

from minga.comm.collectives.segments import segments
from minga.comm.transport import Pending, Transport

__all__ = ["ring"]


def ring(comm: Transport, vector: Tensor) -> None:
    """Add up `vector` over all ranks, in place. Each rank sends 2 (1 - 1/n) of its size, to one neighbour.

    The vector has n chunks. At hop t every rank passes chunk (rank - t) to the right and gets chunk
    (rank - t - 1) from the left; during the first n-1 hops it adds what it gets, and after them it owns one
    complete chunk, which the second n-1 hops pass around. A piece goes on as soon as it is added.
    """
    ranks, rank = comm.size, comm.rank
    if ranks == 1:
        return
    left, right = (rank - 1) % ranks, (rank + 1) % ranks
    chunks = vector.tensor_split(ranks)
    longest = chunks[0].numel()
    # Two buffers: the next hop's pieces may come in while this hop's are being added.
    buffers = [torch.empty(longest, dtype=vector.dtype, device=vector.device) for _ in range(2)]
    hops = 2 * (ranks - 1)

    def post(hop: int) -> list[tuple[Tensor, Tensor, Pending]]:
        chunk = chunks[(rank - hop - 1) % ranks]
        adding = hop < ranks - 1
        landing = buffers[hop % 2][: chunk.numel()] if adding else chunk
        pieces = zip(segments(chunk), segments(landing), strict=True)
        return [(piece, space, comm.ireceive(space, left)) for piece, space in pieces]

    incoming = post(0)
    sends = [comm.isend(piece, right) for piece in segments(chunks[rank])]
    for hop in range(hops):
        following = post(hop + 1) if hop + 1 < hops else []
        for piece, space, arrival in incoming:
            arrival.wait()
            if hop < ranks - 1:
                piece.add_(space)
            if hop + 1 < hops:
                sends.append(comm.isend(piece, right))
        incoming = following
    for send in sends:
        send.wait()
