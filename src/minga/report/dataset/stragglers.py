"""Who holds up the others: a rank whose own work in a step takes clearly longer, where all go in lock step.

straggler = find_straggler(group)
straggler.name, straggler.slower, straggler.waiting     # "h2", 2.0, 0.47
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from minga.report.dataset.groups import Phases, RunGroup, phases_of

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


def in_lockstep(group: RunGroup) -> bool:
    return all(run.lockstep for run in group.runs) and len(group.workers) > 1


def find_straggler(group: RunGroup) -> Straggler | None:
    """None where nobody is at least 20 % slower than the others in every repetition, or where ranks do not wait anyway.

    One rank that is slow once, another the next time, is a busy machine and no straggler.
    """
    if not in_lockstep(group):
        return None
    slowest, slower, others, explained = _slowest(group.phases)
    if slower < _CLEARLY:
        return None
    for run in group.runs:
        here, ratio, _, _ = _slowest(phases_of(run))
        if here.name != slowest.name or ratio < _CLEARLY:
            return None
    in_all = statistics.median(rank.seconds["wait"] / rank.total for rank in others)
    return Straggler(slowest.name, slower, min(explained, in_all), in_all)


def _slowest(ranks: Sequence[Phases]) -> tuple[Phases, float, list[Phases], float]:
    """The worker with most own work, how much that is relative to the others, these, the part of time it explains."""
    # In lock step all have done as many steps, so whole times compare as times of a step do.
    workers = sorted((rank for rank in ranks if rank.trains), key=lambda rank: rank.own)
    *others, slowest = workers
    median = statistics.median(rank.own for rank in others)
    explained = (slowest.own - median) / statistics.median(rank.total for rank in others)
    return slowest, slowest.own / median if median > 0 else 1.0, others, explained
