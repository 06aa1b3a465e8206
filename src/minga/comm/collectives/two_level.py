"""Two levels: add up inside each host, exchange between hosts, spread inside each host."""

from __future__ import annotations

from collections import defaultdict

from minga.base.lazy import Tensor
from minga.comm.collectives.ring import ring
from minga.comm.collectives.tree import broadcast, reduce
from minga.comm.transport import Transport

__all__ = ["neighbourhoods", "two_level"]


def two_level(comm: Transport, vector: Tensor, group_size: int = 0) -> None:
    """Add up `vector` over all ranks, in place; only one rank of each host uses the network between hosts.

    Groups are the ranks that share a host, or `group_size` neighbours where that is given.
    """
    groups = neighbourhoods(comm, group_size)
    mine = next(group for group in groups if comm.rank in group)
    inside = comm.group(mine)
    reduce(inside, vector)
    if inside.rank == 0:
        ring(comm.group([group[0] for group in groups]), vector)
    broadcast(inside, vector)


def neighbourhoods(comm: Transport, group_size: int = 0) -> list[list[int]]:
    """The ranks that share a host or a site, or `group_size` neighbours where that is given; in the order of ranks."""
    if group_size:
        return [list(range(comm.size))[at : at + group_size] for at in range(0, comm.size, group_size)]
    by_host: dict[str, list[int]] = defaultdict(list)
    for rank, host in enumerate(comm.hosts):
        by_host[host].append(rank)
    return list(by_host.values())
