"""Which node should be which rank, by measured delays: neighbours in a ring, and where servers live."""

from __future__ import annotations

import functools
from collections.abc import Sequence

__all__ = ["most_central_first", "nearest_neighbours"]

# So many beginnings are tried; with more nodes, turning parts around takes longer than it gains.
_MOST_STARTS = 16


@functools.lru_cache(maxsize=64)
def nearest_neighbours(delays: tuple[tuple[float, ...], ...]) -> tuple[int, ...]:
    """An order of nodes with short ways between neighbours: nearest first, then parts are turned around while it helps.

    A ring is as slow as its slowest hop, so that counts first, and the sum second.
    """
    nodes = len(delays)
    best = list(range(nodes))
    for start in range(0, nodes, -(-nodes // _MOST_STARTS)):
        order, left = [start], set(range(nodes)) - {start}
        while left:
            order.append(min(left, key=lambda node: (delays[order[-1]][node], node)))
            left.remove(order[-1])
        order = _improved(order, delays)
        if _length(order, delays) < _length(best, delays):
            best = order
    at = best.index(min(best))
    return tuple(best[at:] + best[:at])


def most_central_first(delays: Sequence[Sequence[float]]) -> tuple[int, ...]:
    """An order of nodes for servers beside the first of them: those first that the others are nearest to."""
    nodes = range(len(delays))

    def distance(node: int) -> float:
        return sum(delays[node][other] + delays[other][node] for other in nodes)

    return tuple(sorted(nodes, key=lambda node: (distance(node), node)))


def _improved(order: list[int], delays: Sequence[Sequence[float]]) -> list[int]:
    """2-opt: turn a part of the ring around wherever that makes it shorter."""
    changed = True
    while changed:
        changed = False
        for first in range(1, len(order) - 1):
            for last in range(first + 1, len(order)):
                other = order[:first] + order[first : last + 1][::-1] + order[last + 1 :]
                if _length(other, delays) < _length(order, delays):
                    order, changed = other, True
    return order


def _length(order: Sequence[int], delays: Sequence[Sequence[float]]) -> tuple[float, float]:
    hops = [delays[a][b] for a, b in zip(order, [*order[1:], order[0]], strict=True)]
    return round(max(hops, default=0.0), 9), round(sum(hops), 9)
