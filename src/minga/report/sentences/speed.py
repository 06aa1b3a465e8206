"""Sentences about time: against one node, between strategies, and who holds up the others."""

from __future__ import annotations

from minga.report.dataset.groups import Dataset, RunGroup, lines_over_nodes
from minga.report.dataset.statistics import differ
from minga.report.dataset.stragglers import Straggler, find_straggler, in_lockstep
from minga.report.numbers import duration
from minga.report.sentences.phrases import between, count, joined, ratio, strategy_name, subject, verb

__all__ = ["best_strategies", "speeds", "stragglers"]

_MOST = 6


def speeds(dataset: Dataset) -> list[str]:
    """The largest number of nodes of each kind against one node, with what the time goes into."""
    several = [line.largest for line in lines_over_nodes(dataset)]
    if not several:
        return []
    based = [group for group in several if dataset.baseline(group) is not None]
    if not based:
        shares = [f"{subject(dataset, group)}: {_exchange(group)}." for group in several[:_MOST]]
        return ["There is no run of the same work on one node here, so there is no speedup.", *shares]
    if len(based) <= _MOST:
        return [_against_one(dataset, group) for group in based]
    order = sorted(based, key=lambda group: _speedup(dataset, group))
    distinct = [group for group in order if _differs(dataset, group)]
    faster = sum(_speedup(dataset, group) > 1 for group in distinct)
    slower = len(distinct) - faster
    parts = [f"{faster} are faster than one node", f"{slower} slower"]
    if len(order) > len(distinct):
        parts.append(f"{len(order) - len(distinct)} as fast within the spread")
    total = f"Of {len(order)} kinds of runs on several nodes (each at its largest number), {joined(parts)}."
    return [total, f"Best: {_against_one(dataset, order[-1])}", f"Worst: {_against_one(dataset, order[0])}"]


def _speedup(dataset: Dataset, group: RunGroup) -> float:
    speedup = dataset.speedup(group)
    assert speedup is not None
    return speedup.median


def _differs(dataset: Dataset, group: RunGroup) -> bool:
    baseline = dataset.baseline(group)
    assert baseline is not None
    return differ(group.samples_per_second, baseline.samples_per_second)


def _against_one(dataset: Dataset, group: RunGroup) -> str:
    speedup, baseline = _speedup(dataset, group), dataset.baseline(group)
    assert baseline is not None
    who = f"{subject(dataset, group)} {verb(group, 'is', 'are')}"
    repeated = min(group.n, baseline.n) > 1
    if not _differs(dataset, group):
        if repeated:
            equal = (
                f"as fast as one node within the spread of the runs ({speedup:.2f}x; n = {group.n} and {baseline.n})"
            )
        else:
            equal = f"about as fast as one node ({speedup:.2f}x; single runs, where a few percent are noise)"
        return f"{who} {equal}: {_exchange(group)}."
    per_sample = "" if dataset.same_work else " for each sample"
    if speedup > 1:
        efficiency = f"an efficiency of {100 * speedup / group.nodes:.0f} %"
        return f"{who} {ratio(speedup)} faster than one{per_sample}, {efficiency}: {_exchange(group)}."
    return f"{who} {ratio(1 / speedup)} slower than one{per_sample}: {_exchange(group)}."


def _exchange(group: RunGroup) -> str:
    exchange, waiting = group.share("exchange", "wait"), group.share("wait")
    part = waiting / exchange if exchange > 0.01 else 0.0
    shown = "over 99 %" if 0.995 <= part < 1 else f"{100 * part:.0f} %"
    inside = f" ({shown} of it waiting)" if exchange > 0.01 else ""
    return f"{100 * exchange:.0f} % of the time is exchange{inside}"


def best_strategies(dataset: Dataset) -> list[str]:
    """Where several strategies ran under the same conditions: which one is the fastest."""
    contests: dict[str, dict[int, list[RunGroup]]] = {}
    for group in dataset.groups:
        if group.nodes > 1 and not group.simulated:
            contests.setdefault(group.conditions, {}).setdefault(group.nodes, []).append(group)
    found = []
    for by_nodes in contests.values():
        contested = [nodes for nodes, groups in by_nodes.items() if len({group.strategy for group in groups}) > 1]
        if contested:
            found.append(_contest(dataset, by_nodes[max(contested)]))
    more = [f"{len(found) - _MOST} more such comparisons are in the tables."] if len(found) > _MOST else []
    return [*found[:_MOST], *more]


def _contest(dataset: Dataset, groups: list[RunGroup]) -> str:
    order = sorted(groups, key=lambda group: -group.samples_per_second.median)
    first, last = order[0], order[-1]
    place = count(first.nodes, "node")
    if "cluster.network.bandwidth" in dataset.telling or first.bandwidth is not None:
        place = f"{first.bandwidth_text} and {place}"
    place = f"{place} ({first.rest})" if first.rest else place
    equal = [each for each in order if each is first or not differ(first.samples_per_second, each.samples_per_second)]
    names = [strategy_name(each) for each in equal]
    reason = "within their spread" if all(each.n > 1 for each in equal) else "within what single runs can tell"
    if len(equal) == len(order):
        return f"At {place}, {joined(names)} are equally fast {reason}."
    behind = ratio(first.samples_per_second.median / last.samples_per_second.median)
    time = f" ({duration(first.seconds.median)})" if dataset.same_work else ""
    ahead = f"{behind} faster than {strategy_name(last)}" + (", the slowest" if len(order) > 2 else "")
    if len(equal) == 1:
        return f"At {place}, {names[0]} is the fastest{time}: {ahead}."
    return f"At {place}, {joined(names)} are the fastest and equal {reason}; {names[0]}{time} is {ahead}."


def stragglers(dataset: Dataset) -> list[str]:
    """Ranks whose own work takes clearly longer than the others'."""
    groups = [group for group in dataset.groups if in_lockstep(group)]
    if not groups:
        return []
    found: dict[str, list[tuple[RunGroup, Straggler]]] = {}
    for group in groups:
        if (straggler := find_straggler(group)) is not None:
            found.setdefault(straggler.name, []).append((group, straggler))
    if not found:
        where = f"in all {len(groups)} groups that train in lock step, " if len(groups) > 1 else ""
        always = " in every repetition" if any(group.n > 1 for group in groups) else ""
        longer = f"no rank's own work takes 20 % longer than the median of the others{always}"
        return [f"There is no straggler: {where}{longer}."]
    return [_straggler(dataset, name, cases, len(groups)) for name, cases in list(found.items())[:4]]


def _straggler(dataset: Dataset, name: str, cases: list[tuple[RunGroup, Straggler]], groups: int) -> str:
    slower = [straggler.slower for _, straggler in cases]
    waiting = [100 * straggler.waiting for _, straggler in cases]
    if len(cases) == 1:
        group, straggler = cases[0]
        where = f" with {subject(dataset, group)}" if groups > 1 else ""
        workers = len([rank for rank in group.phases if rank.role != "server"])
        others, wait = ("the other's", "which waits") if workers == 2 else ("the median of the others", "who wait")
        of_time = "its" if workers == 2 else "their"
        return (
            f"{name} is the straggler{where}: its own work takes {ratio(straggler.slower)} as long as {others}, "
            f"{wait} for it {waiting[0]:.0f} % of {of_time} time (and {100 * straggler.waiting_in_all:.0f} % in all)."
        )
    times = between(ratio(min(slower)), ratio(max(slower)))
    part = between(f"{min(waiting):.0f}", f"{max(waiting):.0f}")
    return (
        f"{name} is the straggler in {len(cases)} of {groups} groups that train in lock step: its own work takes "
        f"{times} as long as the median of the others, who wait for it {part} % of their time."
    )
