"""Metrics and loss against time and against epochs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from minga.measure.metric_names import is_share
from minga.report.dataset.groups import Dataset, RunGroup
from minga.report.dataset.reading import Point
from minga.report.dataset.statistics import Spread
from minga.report.dataset.targets import Target
from minga.report.figures.style import (
    Drawing,
    fitted,
    legend_below,
    line_style,
    new_figure,
    plain_logarithmic,
    seconds_label,
    to_svg,
)
from minga.report.numbers import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["CurvePoint", "curve_of", "curves", "file_name"]

_LINES_OF_ONE_PANEL = 8
_PANELS = 12
_TRAINING_POINTS = 40


class CurvePoint(NamedTuple):
    """A metric of a group at one evaluation."""

    epoch: float
    seconds: float
    value: Spread


GroupCurve = tuple[RunGroup, list[CurvePoint]]


def curve_of(group: RunGroup, metric: str) -> list[CurvePoint]:
    """Repetitions are put together by epoch: the median of their times, the median and range of their values."""
    curves = [run.curve if metric != "training loss" else _thinned(run.training_losses) for run in group.runs]
    by_epoch = [{round(point.epoch, 3): point for point in curve if metric in point.metrics} for curve in curves]
    shared = set.intersection(*(set(points) for points in by_epoch)) if by_epoch else set()
    epochs = sorted(shared or set().union(*by_epoch))
    made = []
    for epoch in epochs:
        points = [points[epoch] for points in by_epoch if epoch in points]
        time, value = Spread.of(p.seconds for p in points), Spread.of(p.metrics[metric] for p in points)
        if time is not None and value is not None and math.isfinite(value.median):
            made.append(CurvePoint(epoch, time.median, value))
    return made


def _thinned(points: Sequence[Point]) -> list[Point]:
    """The loss of single batches jumps: means of a few dozen stretches, by epoch, so that repetitions line up."""
    if not points:
        return []
    end = points[-1].epoch
    thinned = []
    for part in range(_TRAINING_POINTS):
        low, high = end * part / _TRAINING_POINTS, end * (part + 1) / _TRAINING_POINTS
        inside = [point for point in points if low < point.epoch <= high]
        if inside:
            mean = sum(point.metrics["training loss"] for point in inside) / len(inside)
            thinned.append(Point(high, inside[-1].seconds, {"training loss": mean}))
    return thinned


def file_name(metric: str) -> str:
    """A metric's name comes from a user's file; as part of a file's name and of ids it must be harmless."""
    return re.sub(r"[^a-z0-9]+", "-", metric.lower()).strip("-")[:40] or "metric"


def curves(dataset: Dataset, target: Target | None) -> list[Drawing]:
    """A figure for each metric; without any evaluation, the loss of training."""
    metrics = dataset.metrics()[:4] or ["training loss"]
    drawings = []
    for metric in metrics:
        measured = [(group, points) for group in dataset.groups if (points := curve_of(group, metric))]
        if measured and max(len(points) for _, points in measured) > 1:
            here = target if target and target.metric == metric else None
            drawings.append(_draw(metric, measured, here, repeated=dataset.repeated))
    return drawings


def _draw(metric: str, measured: list[GroupCurve], target: Target | None, *, repeated: bool) -> Drawing:
    panels: dict[str, list[GroupCurve]] = {}
    crowded = len(measured) > _LINES_OF_ONE_PANEL
    for group, points in measured:
        # A simulated group is drawn over the measured one.
        kind = group.line.removesuffix("simulated").removesuffix(", ")
        panels.setdefault(kind if crowded and group.nodes > 1 else "", []).append((group, points))
    alone = panels.pop("", []) if crowded and len(panels) > 1 else []
    left_out = max(len(panels) - _PANELS, 0)
    panels = dict(list(panels.items())[:_PANELS])
    many = len(panels) > 1
    name = f"{file_name(metric)}-curves"
    percent = is_share(metric)
    title = f"{metric[0].upper()}{metric[1:]} against training time and against epochs"
    note = "A marker is an evaluation."
    if repeated:
        note = "Median of the repetitions at each evaluation; the band is from the lowest to the highest."
    if metric == "training loss":
        note = "There were no evaluations, so this is the loss of rank 0's batches, averaged over stretches."
    note += " Time is that of training alone: starting and evaluating are left out."
    if many:
        note += " One pair of panels for each kind of run, with a time axis of its own; lines are numbers of nodes."
    if left_out:
        note += f" The first {_PANELS} of {_PANELS + left_out} kinds are drawn; the tables have all."
    rows, columns = (-(-len(panels) // 2), 4) if many else (1, 2)
    figure, grid = new_figure(rows, columns, height=2.35 if many else 3.3, extra=0.5, sharey=True)
    cells = [axes for row in grid for axes in row]
    legend: dict[str, object] = {}
    counts = sorted({group.nodes for group, _ in measured})
    for index, (panel, members) in enumerate(panels.items()):
        pair = cells[2 * index : 2 * index + 2]
        divisor, unit = seconds_label(max(point.seconds for _, points in members for point in points))
        for order, (group, points) in enumerate([*_baseline_of(members, alone), *members]):
            style = line_style(counts.index(group.nodes) if many else order, simulated=group.simulated)
            mark = ", simulated" if group.simulated else ""
            label = f"{count(group.nodes, 'node')}{mark}" if many else group.label
            times, epochs = [point.seconds / divisor for point in points], [point.epoch for point in points]
            for axes, positions in zip(pair, (times, epochs), strict=True):
                line = _plot(axes, positions, [point.value for point in points], style, 100 if percent else 1)
                legend.setdefault(label, line)
        _dress(pair, panel if many else "", unit)
        if target is not None:
            for axes in pair:
                axes.axhline(target.value * (100 if percent else 1), color="#555555", linewidth=0.8, linestyle=":")
    for axes in cells[2 * len(panels) :]:
        axes.set_visible(False)
    for row in grid:
        row[0].set_ylabel(f"{metric} [%]" if percent else fitted(metric, 32))
    _limits(cells[0], metric, [point.value for _, points in measured for point in points])
    if target is not None:
        note += f" Dotted: the target of {target.text}."
    if len(legend) > 1:
        legend_below(figure, legend)
    return Drawing(name, title, note, to_svg(figure, name))


def _baseline_of(members: list[GroupCurve], alone: list[GroupCurve]) -> list[GroupCurve]:
    """For a panel of groups with several nodes: the run on one node with the same bandwidth, or any."""
    if not alone:
        return []
    first = members[0][0]
    same = [each for each in alone if each[0].bandwidth == first.bandwidth and each[0].simulated == first.simulated]
    return (same or alone)[:1]


def _plot(axes: Axes, positions: list[float], values: list[Spread], style: dict[str, Any], factor: float) -> object:
    middle = [factor * value.median for value in values]
    (line,) = axes.plot(positions, middle, markevery=max(1, len(positions) // 12), **style)
    if any(value.n > 1 for value in values):
        low, high = [factor * value.low for value in values], [factor * value.high for value in values]
        axes.fill_between(positions, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    return line


def _dress(pair: list[Axes], panel: str, unit: str) -> None:
    from matplotlib.ticker import MaxNLocator

    pair[0].xaxis.set_major_locator(MaxNLocator(6))
    pair[0].set_xlabel(f"training time [{unit}]")
    pair[1].set_xlabel("epochs")
    pair[1].xaxis.set_major_locator(MaxNLocator(6, integer=True))
    for axes in pair:
        axes.set_xlim(left=0)
    pair[0].set_title(fitted(panel, 64), fontsize=8.5)


def _limits(axes: Axes, metric: str, values: list[Spread]) -> None:
    if is_share(metric):
        low = 100 * min(spread.low for spread in values)
        axes.set_ylim(max(0.0, low - 0.06 * (100 - low)), min(100.5, 100 * max(spread.high for spread in values) + 1.5))
    elif metric.endswith("loss") and all(spread.low > 0 for spread in values):
        highest, lowest = max(spread.high for spread in values), min(spread.low for spread in values)
        if highest > 10 * lowest:
            axes.set_yscale("log")
            plain_logarithmic(axes.yaxis, subs=(1.0, 3.0))
        else:
            axes.set_ylim(0, 1.05 * highest)
