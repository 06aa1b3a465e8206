"""Binary tree: reduce to the root and broadcast from it, 2 log2(n) hops."""

from __future__ import annotations

from minga.base.lazy import Tensor, torch
from minga.comm.collectives.ring import segments
from minga.comm.transport import Pending, Transport, collective

__all__ = ["broadcast", "reduce", "tree"]


@collective
def tree(comm: Transport, vector: Tensor) -> None:
    """Add up `vector` over all ranks, in place: up a binary tree to rank 0, and down again."""
    reduce(comm, vector)
    broadcast(comm, vector)


def reduce(comm: Transport, vector: Tensor) -> None:
    """Add up `vector` at rank 0. On the other ranks it is left with the sum of their branch."""
    parent, children = _family(comm.rank, comm.size)
    buffer = torch.empty_like(vector)
    sends: list[Pending] = []
    pieces = list(zip(segments(vector), segments(buffer), strict=True))
    for piece, space in pieces:
        for child in children:
            comm.receive(space, child)
            piece.add_(space)
        if parent is not None:
            sends.append(comm.isend(piece, parent))
    for send in sends:
        send.wait()


def broadcast(comm: Transport, vector: Tensor, root: int = 0) -> None:
    """Everybody takes rank `root`'s `vector`."""
    # The tree is numbered from the root: place p of the tree is rank (p + root) mod n.
    parent, children = _family((comm.rank - root) % comm.size, comm.size)
    sends: list[Pending] = []
    for piece in segments(vector):
        if parent is not None:
            comm.receive(piece, (parent + root) % comm.size)
        sends += [comm.isend(piece, (child + root) % comm.size) for child in children]
    for send in sends:
        send.wait()


def _family(place: int, size: int) -> tuple[int | None, list[int]]:
    """Parent and children of a place in a complete binary tree."""
    parent = (place - 1) // 2 if place else None
    return parent, [child for child in (2 * place + 1, 2 * place + 2) if child < size]
