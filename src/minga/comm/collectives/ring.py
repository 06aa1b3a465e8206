"""Ring all-reduce: bandwidth-optimal, 2 (n-1) hops (Patarasuk & Yuan, 2009)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from minga.base.lazy import Tensor, torch
from minga.comm.collectives.direct import direct
from minga.comm.transport import Pending, Transport, collective

__all__ = ["AHEAD", "SEGMENT_BYTES", "ring", "segments"]

# Two ranks can swap such a vector in one hop, with the same bytes: below this, hops cost more than adding all of it.
_SWAP_BYTES = 1 << 18
# How many pieces may be on their way to a rank at a time.
AHEAD = 4
# Small enough for adding to overlap with sending; below it, a message's fixed cost
# outweighs what a second piece could hide (benchmarks/ring_against_gloo.py).
SEGMENT_BYTES = 4 << 20


def segments(vector: Tensor) -> Sequence[Tensor]:
    """Views that cover `vector` in order; the same cut on every rank, since only the size decides."""
    return vector.tensor_split(max(1, -(-vector.nbytes // SEGMENT_BYTES)))


@collective
def ring(comm: Transport, vector: Tensor) -> None:
    """Add up `vector` over all ranks, in place. Each rank sends 2 (1 - 1/n) of its size, to one neighbour.

    The vector has n chunks. At hop t every rank passes chunk (rank - t) to the right and gets chunk
    (rank - t - 1) from the left; during the first n-1 hops it adds what it gets, and after them it owns one
    complete chunk, which the second n-1 hops pass around. A piece goes on as soon as it is added.
    """
    ranks, rank = comm.size, comm.rank
    if ranks == 1:
        return
    if ranks == 2 and vector.nbytes <= _SWAP_BYTES:
        direct(comm, vector)
        return
    left, right = (rank - 1) % ranks, (rank + 1) % ranks
    chunks = [segments(chunk) for chunk in vector.tensor_split(ranks)]
    hops = 2 * (ranks - 1)
    pieces = [(hop, piece) for hop in range(hops) for piece in chunks[(rank - hop - 1) % ranks]]
    # A few landing places of a piece's size, used in turn: less memory to go through than one of a chunk's size.
    longest = max(piece.numel() for chunk in chunks for piece in chunk)
    places = [torch.empty(longest, dtype=vector.dtype, device=vector.device) for _ in range(AHEAD)]
    arrivals: deque[tuple[Tensor, Pending]] = deque()

    def post(index: int) -> None:
        if index < len(pieces):
            hop, piece = pieces[index]
            space = places[index % AHEAD][: piece.numel()] if hop < ranks - 1 else piece
            arrivals.append((space, comm.ireceive(space, left)))

    for index in range(AHEAD):
        post(index)
    sends = [comm.isend(piece, right) for piece in chunks[rank]]
    for index, (hop, piece) in enumerate(pieces):
        space, arrival = arrivals.popleft()
        arrival.wait()
        if hop < ranks - 1:
            piece.add_(space)
        if hop + 1 < hops:
            sends.append(comm.isend(piece, right))
        post(index + AHEAD)
    for send in sends:
        send.wait()
