"""Who holds up the others: a rank whose own work in a step takes clearly longer, where all go in lock step.

straggler = find_straggler(group)
straggler.name, straggler.slower, straggler.waiting     # "h2", 2.0, 0.47
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from minga.report.dataset.groups import Group

__all__ = ["Straggler", "find_straggler", "in_lockstep"]

_CLEARLY = 1.2


@dataclass(frozen=True)
class Straggler:
    """The rank that the others wait for."""

    name: str
    slower: float
    """Its own work relative to the median of the others'."""
    waiting: float
    """The part of the others' time (median) that its longer work explains."""
    waiting_in_all: float
    """The part of the others' time (median) that they wait for whatever reason."""


def in_lockstep(group: Group) -> bool:
    return all(run.lockstep for run in group.runs) and len([rank for rank in group.phases if _works(rank.role)]) > 1


def find_straggler(group: Group) -> Straggler | None:
    """None where nobody is at least 20 % slower than the others, or where ranks do not wait for each other anyway."""
    if not in_lockstep(group):
        return None
    workers = [rank for rank in group.phases if _works(rank.role)]
    # In lock step all have done as many steps, so whole times compare as times of a step do.
    own = [rank.total - rank.seconds["wait"] for rank in workers]
    slowest = max(range(len(workers)), key=own.__getitem__)
    others = [rank for index, rank in enumerate(workers) if index != slowest]
    median = statistics.median(seconds for index, seconds in enumerate(own) if index != slowest)
    if median <= 0 or own[slowest] < _CLEARLY * median:
        return None
    in_all = statistics.median(rank.seconds["wait"] / rank.total for rank in others)
    explained = (own[slowest] - median) / statistics.median(rank.total for rank in others)
    return Straggler(workers[slowest].name, own[slowest] / median, min(explained, in_all), in_all)


def _works(role: str) -> bool:
    return role != "server"
