"""What the figures show, in sentences that are computed from the same data.

for sentence in sentences(dataset, target):
    print(sentence)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from minga.measure.metric_names import is_share
from minga.report.dataset.groups import Dataset, RunGroup, lines_over_nodes
from minga.report.dataset.links import links_of
from minga.report.dataset.settings import shown_value
from minga.report.dataset.statistics import differ
from minga.report.dataset.stragglers import Straggler, find_straggler, in_lockstep
from minga.report.dataset.targets import Target, reached
from minga.report.numbers import count, duration, shown_metric

__all__ = ["sentences"]

_POINT = 0.01
_PART = 0.01
_MOST_KINDS = 6
_MOST_NAMES = 4
_OFF = 0.05


def sentences(dataset: Dataset, target: Target | None) -> list[str]:
    """The most important first."""
    return [
        *_opening(dataset),
        *_speeds(dataset),
        *_best_strategies(dataset),
        *_stragglers(dataset),
        *_quality(dataset),
        *_target_times(dataset, target),
        *_energy(dataset),
        *_simulations(dataset),
        *_links(dataset),
        *_failures(dataset),
    ]


def _opening(dataset: Dataset) -> list[str]:
    workloads = _joined(sorted({shown_value("workload", group.settings["workload"]) for group in dataset.groups}))
    if len(dataset.groups) == 1:
        return [_only(dataset, dataset.groups[0], workloads)]
    repetitions = sorted({group.n for group in dataset.groups})
    each = f"{repetitions[0]}" if len(repetitions) == 1 else f"{repetitions[0]} to {repetitions[-1]}"
    plural = "s" if repetitions[-1] > 1 else ""
    total = f"{count(len(dataset.found.runs), 'run')} of {workloads} in {len(dataset.groups)} groups"
    caution = " With one repetition there is no spread: differences of a few percent are noise."
    return [f"{total}, {each} repetition{plural} each.{caution if repetitions[0] == 1 else ''}"]


def _only(dataset: Dataset, group: RunGroup, workloads: str) -> str:
    many = f"{group.n} runs" if group.n > 1 else "One run"
    epochs = group.number(lambda run: run.finished.epochs).median
    length = f"{epochs:.3g} epoch{'' if epochs == 1 else 's'} in {duration(group.seconds.median)}"
    reached = [
        f"{name} {shown_metric(name, spread.median)}"
        for name in dataset.metrics()
        if (spread := group.metric(name)) is not None
    ]
    what = f"{_joined(reached)} after {length}" if reached else f"trained for {length}"
    median = " (medians)" if group.n > 1 else ""
    where = f"{count(group.nodes, 'node')} with {_strategy_name(group)}" if group.nodes > 1 else "one node"
    return f"{many} of {workloads} on {where}: {what}{median}, {group.samples_per_second.median:,.0f} samples/s."


def _speeds(dataset: Dataset) -> list[str]:
    """The largest number of nodes of each kind against one node, with what the time goes into."""
    several = [line.largest for line in lines_over_nodes(dataset)]
    based = [(group, baseline) for group in several if (baseline := dataset.baseline(group)) is not None]
    if several and not based:
        shares = [f"{_subject(dataset, group)}: {_exchange(group)}." for group in several[:_MOST_KINDS]]
        return ["There is no run of the same work on one node here, so there is no speedup.", *shares]
    if len(based) <= _MOST_KINDS:
        return [_against_one(dataset, *pair) for pair in based]
    order = sorted(based, key=lambda pair: _speedup(*pair))
    distinct = [(group, one) for group, one in order if differ(group.samples_per_second, one.samples_per_second)]
    faster = sum(_speedup(*pair) > 1 for pair in distinct)
    slower = len(distinct) - faster
    parts = [f"{faster} are faster than one node", f"{slower} slower"]
    if len(order) > len(distinct):
        parts.append(f"{len(order) - len(distinct)} as fast within the spread")
    total = f"Of {len(order)} kinds of runs on several nodes (each at its largest number), {_joined(parts)}."
    return [total, f"Best: {_against_one(dataset, *order[-1])}", f"Worst: {_against_one(dataset, *order[0])}"]


def _speedup(group: RunGroup, one: RunGroup) -> float:
    return group.samples_per_second.median / one.samples_per_second.median


def _against_one(dataset: Dataset, group: RunGroup, one: RunGroup) -> str:
    speedup = _speedup(group, one)
    who = f"{_subject(dataset, group)} {_verb(group, 'is', 'are')}"
    if not differ(group.samples_per_second, one.samples_per_second):
        equal = f"about as fast as one node ({speedup:.2f}x; single runs, where a few percent are noise)"
        if min(group.n, one.n) > 1:
            equal = f"as fast as one node within the spread of the runs ({speedup:.2f}x; n = {group.n} and {one.n})"
        return f"{who} {equal}: {_exchange(group)}."
    per_sample = "" if dataset.same_work else " for each sample"
    if speedup > 1:
        efficiency = f"an efficiency of {100 * speedup / group.nodes:.0f} %"
        return f"{who} {_ratio(speedup)} faster than one{per_sample}, {efficiency}: {_exchange(group)}."
    return f"{who} {_ratio(1 / speedup)} slower than one{per_sample}: {_exchange(group)}."


def _exchange(group: RunGroup) -> str:
    exchange, waiting = group.share("exchange", "wait"), group.share("wait")
    part = waiting / exchange if exchange > 0.01 else 0.0
    shown = "over 99 %" if 0.995 <= part < 1 else f"{100 * part:.0f} %"
    inside = f" ({shown} of it waiting)" if exchange > 0.01 else ""
    return f"{100 * exchange:.0f} % of the time is exchange{inside}"


def _best_strategies(dataset: Dataset) -> list[str]:
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
    more = [f"{len(found) - _MOST_KINDS} more such comparisons are in the tables."] if len(found) > _MOST_KINDS else []
    return [*found[:_MOST_KINDS], *more]


def _contest(dataset: Dataset, groups: list[RunGroup]) -> str:
    order = sorted(groups, key=lambda group: -group.samples_per_second.median)
    first, last = order[0], order[-1]
    place = count(first.nodes, "node")
    if "cluster.network.bandwidth" in dataset.telling or first.bandwidth is not None:
        place = f"{first.bandwidth_text} and {place}"
    place = f"{place} ({first.rest})" if first.rest else place
    equal = [each for each in order if each is first or not differ(first.samples_per_second, each.samples_per_second)]
    names = [_strategy_name(each) for each in equal]
    reason = "within their spread" if all(each.n > 1 for each in equal) else "within what single runs can tell"
    if len(equal) == len(order):
        return f"At {place}, {_joined(names)} are equally fast {reason}."
    behind = _ratio(first.samples_per_second.median / last.samples_per_second.median)
    time = f" ({duration(first.seconds.median)})" if dataset.same_work else ""
    ahead = f"{behind} faster than {_strategy_name(last)}" + (", the slowest" if len(order) > 2 else "")
    if len(equal) == 1:
        return f"At {place}, {names[0]} is the fastest{time}: {ahead}."
    return f"At {place}, {_joined(names)} are the fastest and equal {reason}; {names[0]}{time} is {ahead}."


def _stragglers(dataset: Dataset) -> list[str]:
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
        where = f" with {_subject(dataset, group)}" if groups > 1 else ""
        workers = len([rank for rank in group.phases if rank.role != "server"])
        others, wait = ("the other's", "which waits") if workers == 2 else ("the median of the others", "who wait")
        of_time = "its" if workers == 2 else "their"
        return (
            f"{name} is the straggler{where}: its own work takes {_ratio(straggler.slower)} as long as {others}, "
            f"{wait} for it {waiting[0]:.0f} % of {of_time} time (and {100 * straggler.waiting_in_all:.0f} % in all)."
        )
    times = _between(_ratio(min(slower)), _ratio(max(slower)))
    part = _between(f"{min(waiting):.0f}", f"{max(waiting):.0f}")
    return (
        f"{name} is the straggler in {len(cases)} of {groups} groups that train in lock step: its own work takes "
        f"{times} as long as the median of the others, who wait for it {part} % of their time."
    )


def _quality(dataset: Dataset) -> list[str]:
    """Where many nodes end away from one by more than a point, or by more than a hundredth of what is no share."""
    metrics = dataset.metrics()
    if not metrics:
        return []
    metric = metrics[0]
    compared, found = 0, []
    for group in dataset.groups:
        baseline = dataset.baseline(group) if group.nodes > 1 else None
        mine, other = group.metric(metric), baseline.metric(metric) if baseline else None
        if mine is None or other is None:
            continue
        compared += 1
        difference = mine.median - other.median
        # A difference that counts is 1 in this measure.
        apart = abs(difference) / (_POINT if is_share(metric) else _PART * abs(other.median) or math.ulp(0.0))
        if apart > 1:
            words = f"{_subject(dataset, group)} {_verb(group, 'ends', 'end')} at {shown_metric(metric, mine.median)}, "
            words += f"{_far(metric, difference, other.median)} {'above' if difference > 0 else 'below'} one node "
            words += f"({shown_metric(metric, other.median)}"
            overlap = mine.low <= other.high and other.low <= mine.high
            doubt = "; their ranges overlap" if overlap and min(mine.n, other.n) > 1 else ""
            doubt = "; single runs" if min(mine.n, other.n) == 1 else doubt
            found.append((apart, f"{words}{doubt})."))
    name = f"{metric[0].upper()}{metric[1:]}"
    if dataset.lower_is_better(metric) and found:
        name += " (less is better)"
    measure = "a point" if is_share(metric) else "1 %"
    if compared and not found:
        return [f"{name}: all groups on several nodes end within {measure} of one node."]
    found.sort(key=lambda pair: -pair[0])
    if len(found) <= 2:
        return [f"{name}: {sentence}" for _, sentence in found]
    where = f"{len(found)} of {compared} groups on several nodes end more than {measure} from one node"
    return [f"{name}: {where}; the farthest: {found[0][1]}"]


def _far(metric: str, difference: float, reference: float) -> str:
    if is_share(metric):
        return f"{abs(100 * difference):.1f} points"
    return f"{abs(100 * difference / reference):.1f} %" if reference else f"{abs(difference):.4g}"


def _target_times(dataset: Dataset, target: Target | None) -> list[str]:
    if target is None or len(dataset.groups) < 2:
        return []
    results = [(group, *reached(group, target)) for group in dataset.groups]
    arrived = sorted((each for each in results if math.isfinite(each[1].median)), key=lambda each: each[1].median)
    never = [_subject(dataset, group) for group, spread, _ in results if not math.isfinite(spread.median)]
    if not arrived:
        return [f"No group reaches {target.text} ({target.reason})."]
    first, last = arrived[0], arrived[-1]
    text = f"Time to {target.text} ({target.reason}): {duration(first[1].median)} with {_subject(dataset, first[0])}"
    if last is not first:
        text += f" up to {duration(last[1].median)} with {_subject(dataset, last[0])}"
    if never:
        listed = _joined(never) if len(never) <= _MOST_NAMES else f"{len(never)} groups"
        text += f"; never with {listed}"
    return [text + "."]


def _energy(dataset: Dataset) -> list[str]:
    """Relative to one node: the best and the worst, each with its mark."""
    relative: list[tuple[float, float, RunGroup]] = []
    for line in lines_over_nodes(dataset):
        pair = dataset.relative_energy(line.largest)
        if pair is not None:
            relative.append((pair[1], pair[0], line.largest))
    relative.sort(key=lambda each: each[0])
    shown = relative if len(relative) <= 2 else [relative[0], relative[-1]]
    ends = ["lowest: ", "highest: "] if len(shown) == 2 else [""] * len(shown)
    found = []
    for end, (product, joules, group) in zip(ends, shown, strict=True):
        baseline = dataset.baseline(group)
        assert baseline is not None and baseline.energy is not None and group.energy is not None
        mark = " (estimated)" if group.energy.estimated or baseline.energy.estimated else ""
        takes = _verb(group, "takes", "take")
        found.append(
            f"Energy{mark}, {end}{_subject(dataset, group)} {takes} {_ratio(joules)} the energy "
            f"of one node{mark} at {_ratio(product)} its energy-delay product{mark}."
        )
    return found


def _links(dataset: Dataset) -> list[str]:
    """Those that carry another rate than was asked for."""
    rows = [row for row in links_of(dataset) if row.asked and row.measured and row.quantity == "rate"]
    off = sorted((row for row in rows if abs(row.deviation) > _OFF), key=lambda row: -abs(row.deviation))
    if not off:
        return [f"All {len(rows)} measured rates of links are within 5 % of what was asked for."] if rows else []
    worst = off[0]
    asked, measured = (shown_value("bandwidth", value) for value in (worst.asked, worst.measured))
    many = f"{len(off)} of {count(len(rows), 'measured link rate')} {'is' if len(off) == 1 else 'are'}"
    where = f"{worst.host} {worst.direction}, {measured} instead of {asked}"
    by = f"{abs(100 * worst.deviation):.0f} % {'more' if worst.deviation > 0 else 'less'}"
    whose = f"with {_subject(dataset, worst.group)}"
    return [f"{many} more than 5 % off what was asked for; the worst: {where} ({by}), {whose}."]


def _failures(dataset: Dataset) -> list[str]:
    failed = dataset.found.failures
    if not failed:
        return []
    total = len(dataset.found.runs) + len(failed)
    name, reason = failed[0]
    first = reason if len(reason) <= 160 else f"{reason[:160]}…"
    such = "" if len(failed) == 1 else "such as "
    return [f"{len(failed)} of {count(total, 'run')} can't be counted: {such}{name} ({first.rstrip('.')})."]


def _simulations(dataset: Dataset) -> list[str]:
    """How far simulated times are from those of equal measured groups."""
    measured = {repr(sorted(group.settings.items(), key=str)): group for group in dataset.groups if not group.simulated}
    ratios = []
    for group in dataset.groups:
        other = measured.get(repr(sorted(group.settings.items(), key=str)))
        if group.simulated and other is not None:
            ratios.append(group.seconds.median / other.seconds.median)
    if not ratios:
        return []
    low, high = min(ratios), max(ratios)
    if len(ratios) == 1:
        return [f"The simulated time is {_ratio(low)} the measured one."]
    return [f"Simulated times are {_ratio(low)} to {_ratio(high)} the measured ones ({len(ratios)} pairs)."]


def _subject(dataset: Dataset, group: RunGroup) -> str:
    """`4 nodes at 10 Mbit/s with ring (batch 32)`: what differs between the groups, as part of a sentence."""
    if group.environment is not None:
        return f"“{group.label}”"
    words = count(group.nodes, "node")
    # Where nothing else differs, a bandwidth that all have in common is worth a word too.
    differs = "cluster.network.bandwidth" in dataset.telling
    common = group.bandwidth is not None and dataset.telling in ([], ["cluster.nodes"])
    if (differs and (group.nodes > 1 or group.bandwidth is not None)) or common:
        places = {"loopback": "on loopback", "unlimited": "on an unlimited network"}
        place = places.get(group.bandwidth_text, f"at {group.bandwidth_text}")
        words += f" {place}"
    if "strategy" in dataset.telling and not (group.nodes == 1 and group.strategy == "single"):
        words += f" with {_strategy_name(group)}"
    return f"{words} ({group.rest})" if group.rest else words


def _strategy_name(group: RunGroup) -> str:
    return shown_value("strategy", group.strategy)


def _verb(group: RunGroup, one: str, many: str) -> str:
    return one if group.nodes == 1 or group.environment is not None else many


def _between(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def _joined(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _ratio(value: float) -> str:
    """`3.1x`; near one with two digits, so that nothing is `1.0x faster`."""
    if value < 1.2:
        return f"{value:.2f}x"
    return f"{value:.1f}x" if value < 20 else f"{value:.0f}x"
