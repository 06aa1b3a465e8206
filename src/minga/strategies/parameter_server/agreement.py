"""What ranks go on from when they recover around servers: worked out by each of them from what all have said.

    agreement = agree([RankState(name="node-0 5f3a", survivor=True, applied=7, ...), ...], lockstep=True)
    agreement.undone[rank], agreement.merged_steps, agreement.lost

Servers are the truth. A push is in the state if all servers have applied it; where only some have, they undo it. What
is not in the state is given back to the data order by whoever computes the position: `merged_steps` has, for each
worker of the last period, the last of its steps that counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from minga.errors import RunError
from minga.net.strict import Count, Flag, StrictRecord, Text
from minga.strategies.parameter_server.shard import Key
from minga.strategies.parameter_server.update_log import Entry, Period

__all__ = ["Agreement", "RankState", "agree"]


@dataclass(frozen=True, kw_only=True)
class RankState(StrictRecord):
    """What a rank reports about itself to all others."""

    name: Text
    """Id and incarnation."""
    server: Flag = False
    """Whether it is there to serve, sooner or later."""
    survivor: Flag = False
    """Whether it has trained with others before."""
    final: Flag = False
    """Whether it has the final parameters."""
    applied: Count = 0
    """The last of its steps that all servers have answered."""
    acknowledged: Count = 0
    """The number of that push; 0 if there was none."""
    step: Count = 0
    order: dict[str, Any] = field(default_factory=dict)
    period: Period | None = None
    """The last that it knows of."""
    truth: Flag = False
    """Of a server: whether it has its shard, in memory or restored."""
    book: dict[str, list[Entry]] = field(default_factory=dict)
    """Of a server: the last pushes of each worker that are in it."""

    def by_number(self) -> dict[str, dict[int, Entry]]:
        """The book's entries."""
        return {member: {entry.number: entry for entry in entries} for member, entries in self.book.items()}


@dataclass(frozen=True)
class Agreement:
    """What all go on from."""

    period: Period
    merged_steps: list[int]
    """For each worker of that period, the last of its steps that is in the state."""
    common: dict[str, list[Entry]]
    """What is in all shards."""
    undone: dict[int, set[Key]]
    """For the rank of each server: pushes that are in its shard, but not in all."""
    lost: list[int]
    """Ranks of servers that have nothing to go on from."""
    source: int | None
    """The rank of the worker whose parameters such servers go on from."""


def agree(reports: Sequence[RankState], *, lockstep: bool) -> Agreement:
    """The same on every rank; `lockstep`: all workers are in the same step. There is a server among them."""
    acknowledged = {report.name: report.acknowledged for report in reports if report.survivor and not report.server}
    books = {
        rank: report.by_number()
        for rank, report in enumerate(reports)
        if report.server and report.truth and not _stale(report, acknowledged)
    }
    lost = [rank for rank, report in enumerate(reports) if report.server and rank not in books]
    survivors = [rank for rank, report in enumerate(reports) if report.survivor and not report.server]
    source = max(survivors, key=lambda rank: (reports[rank].applied, -rank), default=None)
    if lost and source is None:
        raise RunError(
            f"{reports[lost[0]].name.partition(' ')[0]} has lost its part of the parameters, and no worker is left "
            "that has a copy; go on from the last checkpoint with: minga train --resume RUN"
        )
    known = [period for rank in (books or survivors) if (period := reports[rank].period) is not None]
    period = max(known, key=lambda each: each.number)
    if not books:
        return _from_workers(reports, period, lost, source, lockstep=lockstep)
    common: dict[str, list[Entry]] = {}
    undone: dict[int, set[Key]] = {rank: set() for rank in books}
    furthest = reports[source].applied if source is not None else 0
    for member in sorted({name for book in books.values() for name in book}):
        shared = set.intersection(*(set(book.get(member, ())) for book in books.values()))
        entries = next(iter(books.values())).get(member, {})
        if lost:
            # The parameters that lost servers go on from have what their source was answered with, and no more: in
            # step, everybody's push of its last step, whether that one knows of it or not.
            if lockstep:
                shared = {number for number in shared if entries[number].step <= furthest}
            else:
                shared = {number for number in shared if number <= acknowledged.get(member, number)}
        last = max(shared, default=0)
        common[member] = [entries[number] for number in sorted(shared)]
        for rank, book in books.items():
            undone[rank] |= {(member, number) for number in book.get(member, ()) if number > last}
    merged_steps = [_last_step(common.get(name, ()), period) for name in period.workers]
    return Agreement(period, merged_steps, common, undone, lost, source)


def _stale(report: RankState, acknowledged: dict[str, int]) -> bool:
    """Whether a server lacks what workers know it has applied: a disk has lost the end of its log."""
    entries = report.by_number()
    return any(number > max(entries.get(name, ()), default=0) for name, number in acknowledged.items())


def _from_workers(
    reports: Sequence[RankState], period: Period, lost: list[int], source: int | None, *, lockstep: bool
) -> Agreement:
    """No server has anything: workers know of their own steps, and of others that they are about as far."""
    known = {report.name: report for report in reports if report.survivor and not report.server}
    if lockstep:
        # Who has got an answer has everybody's step in it, also that of a worker which was not answered any more.
        assert source is not None
        furthest = reports[source].applied
        merged_steps = [furthest] * len(period.workers)
        pushes = {name: report.acknowledged + furthest - report.applied for name, report in known.items()}
        common = {name: [Entry(number, period.number, furthest)] for name, number in pushes.items() if number}
        return Agreement(period, merged_steps, common, {}, lost, source)
    least = min(report.applied for report in known.values())
    merged_steps = [known[name].applied if name in known else least for name in period.workers]
    common = {
        name: [Entry(report.acknowledged, period.number, report.applied)]
        for name, report in known.items()
        if report.acknowledged
    }
    return Agreement(period, merged_steps, common, {}, lost, source)


def _last_step(entries: Sequence[Entry], period: Period) -> int:
    return max((entry.step for entry in entries if entry.period == period.number), default=period.step)
