"""Sentences about energy, links, failures and simulated runs."""

from __future__ import annotations

from minga.report.dataset.groups import Dataset, Group
from minga.report.dataset.lines import lines_over_nodes
from minga.report.dataset.links import links_of
from minga.report.dataset.settings import shown_value
from minga.report.words.phrases import count, ratio, subject, verb

__all__ = ["energy", "failures", "links", "simulations"]

_OFF = 0.05


def energy(dataset: Dataset) -> list[str]:
    """Relative to one node: the best and the worst, each with its mark."""
    relative: list[tuple[float, float, Group]] = []
    for line in lines_over_nodes(dataset):
        pair = dataset.relative_energy(line.largest)
        if pair is not None:
            relative.append((pair[1], pair[0], line.largest))
    relative.sort(key=lambda each: each[0])
    shown = relative if len(relative) <= 2 else [relative[0], relative[-1]]
    ends = ["lowest: ", "highest: "] if len(shown) == 2 else [""] * len(shown)
    told = []
    for end, (product, joules, group) in zip(ends, shown, strict=True):
        baseline = dataset.baseline(group)
        assert baseline is not None and baseline.energy is not None and group.energy is not None
        mark = " (estimated)" if group.energy.estimated or baseline.energy.estimated else ""
        takes = verb(group, "takes", "take")
        told.append(
            f"Energy{mark}, {end}{subject(dataset, group)} {takes} {ratio(joules)} the energy "
            f"of one node{mark} at {ratio(product)} its energy-delay product{mark}."
        )
    return told


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
