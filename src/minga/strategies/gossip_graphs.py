"""Who talks to whom in a round of gossip: `mixing_round("exponential", seed=0, rank=2, size=8, number=5)`.

Every rank works its own place out from the same numbers, so nothing has to be sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from minga.base.lazy import torch

__all__ = ["Graph", "Neighbours", "mixing_round", "partners", "pushing_round"]

Graph = Literal["ring", "exponential", "random"]


@dataclass(frozen=True)
class Neighbours:
    """One rank's part in one round."""

    receivers: tuple[int, ...] = ()
    """Who gets what this rank has."""

    senders: tuple[int, ...] = ()
    """Who sends to this rank."""


def mixing_round(graph: Graph, seed: int, rank: int, size: int, number: int) -> Neighbours:
    """A round in which all have as many senders as receivers: with equal weights, the mean of all stays what it is.

    ring: both neighbours. exponential: one neighbour at distance 1, 2, 4, ... in turn, so that everybody has
    something of everybody after log2(size) rounds (Assran et al., arXiv:1811.10792). random: pairs, drawn again in
    every round.
    """
    if size == 1:
        return Neighbours()
    if graph == "ring":
        both = tuple(sorted({(rank - 1) % size, (rank + 1) % size}))
        return Neighbours(both, both)
    if graph == "exponential":
        return _at_distance(1 << number % (size - 1).bit_length(), rank, size)
    drawn: list[int] = torch.randperm(size, generator=_generator(seed, number)).tolist()
    place = drawn.index(rank) ^ 1  # the other one of the pair
    partner = (drawn[place],) if place < size else ()  # where the number of ranks is odd, one stays alone
    return Neighbours(partner, partner)


def pushing_round(graph: Graph, seed: int, rank: int, size: int, number: int) -> Neighbours:
    """A round in which everybody sends to one other, whoever that one sends to and however many others send to it.

    ring: the next rank. exponential: as for mixing. random: anybody, drawn again in every round.
    """
    if size == 1:
        return Neighbours()
    if graph == "ring":
        return _at_distance(1, rank, size)
    if graph == "exponential":
        return mixing_round(graph, seed, rank, size, number)
    shifts: list[int] = torch.randint(1, size, (size,), generator=_generator(seed, number)).tolist()
    chosen = [(sender + shift) % size for sender, shift in enumerate(shifts)]
    return Neighbours((chosen[rank],), tuple(sender for sender in range(size) if chosen[sender] == rank))


def partners(graph: Graph, *, rank: int, size: int) -> tuple[int, ...]:
    """The neighbours of a rank in a graph with edges only between even and odd ranks.

    Even ranks ask and odd ones answer; so nobody who waits for an answer is waited for, and no circle of ranks that
    wait for each other can form (Lian et al., arXiv:1710.06952).
    """
    if graph == "ring":
        distances = [1]
    elif graph == "exponential":
        distances = [1, *(1 + (1 << power) for power in range(1, max(1, size.bit_length() - 1)))]
    else:
        distances = list(range(1, size))
    near = {(rank + sign * distance) % size for distance in distances for sign in (1, -1)}
    return tuple(sorted(other for other in near if (other - rank) % 2))


def _at_distance(distance: int, rank: int, size: int) -> Neighbours:
    return Neighbours(((rank + distance) % size,), ((rank - distance) % size,))


def _generator(seed: int, number: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed * 1_000_003 + number) & ((1 << 62) - 1))
