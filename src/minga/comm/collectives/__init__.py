"""Collectives as plain functions over any transport.

    COLLECTIVES["ring"](comm, vector)            # every rank: vector becomes the sum over all ranks

Each works for any number of ranks and any length, leaves the same bits on every rank, and adds in an order
that depends only on the ranks: the same input gives the same bits again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from minga.base.lazy import Tensor, torch
from minga.comm.collectives.averaging import Averaging, all_reduce_mean, average_in_place
from minga.comm.collectives.direct import direct, native
from minga.comm.collectives.halving_doubling import halving_doubling
from minga.comm.collectives.mesh import mesh
from minga.comm.collectives.ring import ring
from minga.comm.collectives.tree import broadcast, reduce, tree
from minga.comm.collectives.two_level import two_level
from minga.comm.transport import Transport

__all__ = [
    "COLLECTIVES",
    "Averaging",
    "Collective",
    "CollectiveName",
    "all_reduce_mean",
    "all_reduce_sum",
    "average_in_place",
    "barrier",
    "broadcast",
    "direct",
    "halving_doubling",
    "mesh",
    "native",
    "reduce",
    "ring",
    "same_everywhere",
    "tree",
    "two_level",
]

Collective = Callable[[Transport, Tensor], None]
CollectiveName = Literal["native", "ring", "tree", "halving_doubling", "mesh", "two_level", "direct"]

COLLECTIVES: dict[str, Collective] = {
    each.__name__: each for each in (native, ring, tree, halving_doubling, mesh, two_level, direct)
}


def all_reduce_sum(comm: Transport, *values: float) -> list[float]:
    """Sums of a few numbers over all ranks, in float64: counts, losses, correct answers."""
    sums = torch.tensor(values, dtype=torch.float64)
    tree(comm, sums)
    return [float(value) for value in sums]


def barrier(comm: Transport) -> None:
    """Nobody goes on before everybody is here."""
    all_reduce_sum(comm, 0.0)


def same_everywhere(comm: Transport, digest: str) -> bool:
    """Whether all ranks have the same digest, of 16 hexadecimal digits, without sending what it is of.

    An empty one counts as zero.
    """
    own = int(digest or "0", 16) >> 1  # without the bit that would be a sign
    first = torch.full((1,), own)
    broadcast(comm, first)
    return not all_reduce_sum(comm, int(first) != own)[0]
