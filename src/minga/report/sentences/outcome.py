"""Sentences about what came out: quality, time to a target, energy, links, failures, simulated times."""

from __future__ import annotations

import math

from minga.measure.metric_names import is_share
from minga.report.dataset.groups import Dataset, RunGroup, lines_over_nodes
from minga.report.dataset.links import links_of
from minga.report.dataset.settings import shown_value
from minga.report.dataset.targets import Target, reached
from minga.report.numbers import duration, shown_metric
from minga.report.sentences.phrases import count, joined, ratio, strategy_name, subject, verb

__all__ = ["energy", "failures", "links", "opening", "quality", "simulations", "target_times"]

_POINT = 0.01
_PART = 0.01
_MOST = 4
_OFF = 0.05


def opening(dataset: Dataset) -> list[str]:
    workloads = joined(sorted({shown_value("workload", group.settings["workload"]) for group in dataset.groups}))
    if len(dataset.groups) == 1:
        return [_only(dataset, dataset.groups[0], workloads)]
    repetitions = sorted({group.n for group in dataset.groups})
    each = f"{repetitions[0]}" if len(repetitions) == 1 else f"{repetitions[0]} to {repetitions[-1]}"
    plural = "s" if repetitions[-1] > 1 else ""
    runs = (
        f"{count(dataset.runs, 'run')} of {workloads} in {len(dataset.groups)} groups, {each} repetition{plural} each."
    )
    caution = " With one repetition there is no spread: differences of a few percent are noise."
    return [runs + (caution if repetitions[0] == 1 else "")]


def _only(dataset: Dataset, group: RunGroup, workloads: str) -> str:
    many = f"{group.n} runs" if group.n > 1 else "One run"
    epochs = group.number(lambda run: run.finished.epochs).median
    length = f"{epochs:.3g} epoch{'' if epochs == 1 else 's'} in {duration(group.seconds.median)}"
    reached = [
        f"{name} {shown_metric(name, spread.median)}"
        for name in dataset.metrics()
        if (spread := group.metric(name)) is not None
    ]
    what = f"{joined(reached)} after {length}" if reached else f"trained for {length}"
    median = " (medians)" if group.n > 1 else ""
    where = f"{count(group.nodes, 'node')} with {strategy_name(group)}" if group.nodes > 1 else "one node"
    return f"{many} of {workloads} on {where}: {what}{median}, {group.samples_per_second.median:,.0f} samples/s."


def quality(dataset: Dataset) -> list[str]:
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
            words = f"{subject(dataset, group)} {verb(group, 'ends', 'end')} at {shown_metric(metric, mine.median)}, "
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


def target_times(dataset: Dataset, target: Target | None) -> list[str]:
    if target is None or len(dataset.groups) < 2:
        return []
    results = [(group, *reached(group, target)) for group in dataset.groups]
    arrived = sorted((each for each in results if math.isfinite(each[1].median)), key=lambda each: each[1].median)
    never = [subject(dataset, group) for group, spread, _ in results if not math.isfinite(spread.median)]
    if not arrived:
        return [f"No group reaches {target.text} ({target.reason})."]
    first, last = arrived[0], arrived[-1]
    text = f"Time to {target.text} ({target.reason}): {duration(first[1].median)} with {subject(dataset, first[0])}"
    if last is not first:
        text += f" up to {duration(last[1].median)} with {subject(dataset, last[0])}"
    if never:
        listed = joined(never) if len(never) <= _MOST else f"{len(never)} groups"
        text += f"; never with {listed}"
    return [text + "."]


def energy(dataset: Dataset) -> list[str]:
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
        takes = verb(group, "takes", "take")
        found.append(
            f"Energy{mark}, {end}{subject(dataset, group)} {takes} {ratio(joules)} the energy "
            f"of one node{mark} at {ratio(product)} its energy-delay product{mark}."
        )
    return found


def links(dataset: Dataset) -> list[str]:
    """Those that carry another rate than was asked for."""
    rows = [row for row in links_of(dataset) if row.asked and row.measured and row.quantity == "rate"]
    if not rows:
        return []
    off = sorted((row for row in rows if abs(row.deviation) > _OFF), key=lambda row: -abs(row.deviation))
    if not off:
        return [f"All {len(rows)} measured rates of links are within 5 % of what was asked for."]
    worst = off[0]
    assert worst.asked is not None and worst.measured is not None
    asked, measured = (shown_value("bandwidth", value) for value in (worst.asked, worst.measured))
    direction = "more" if worst.deviation > 0 else "less"
    text = f"{len(off)} of {count(len(rows), 'measured link rate')} {'is' if len(off) == 1 else 'are'} more "
    text += (
        f"than 5 % off what was asked for; the worst: {worst.host} {worst.direction}, {measured} instead of {asked} "
    )
    return [text + f"({abs(100 * worst.deviation):.0f} % {direction}), with {subject(dataset, worst.group)}."]


def failures(dataset: Dataset) -> list[str]:
    failed = dataset.found.failures
    if not failed:
        return []
    total = dataset.runs + len(failed)
    name, reason = failed[0]
    first = reason if len(reason) <= 160 else f"{reason[:160]}…"
    such = "" if len(failed) == 1 else "such as "
    return [f"{len(failed)} of {count(total, 'run')} can't be counted: {such}{name} ({first.rstrip('.')})."]


def simulations(dataset: Dataset) -> list[str]:
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
        return [f"The simulated time is {ratio(low)} the measured one."]
    return [f"Simulated times are {ratio(low)} to {ratio(high)} the measured ones ({len(ratios)} pairs)."]
