"""Time, speedup and efficiency against the number of nodes: a line for each bandwidth, a row for each strategy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from minga.report.dataset.groups import Dataset, NodesLine, RunGroup, lines_over_nodes
from minga.report.dataset.settings import shown_value
from minga.report.dataset.statistics import Spread
from minga.report.figures.style import (
    Drawing,
    fitted,
    legend_below,
    line_style,
    new_figure,
    seconds_label,
    tidy,
    to_svg,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["scaling"]

_ROWS = 8


def scaling(dataset: Dataset) -> list[Drawing]:
    """Nothing unless there are at least two numbers of nodes on some line."""
    lines = [line for line in lines_over_nodes(dataset) if len(line.groups) > 1]
    if not lines:
        return []
    rows = _rows(lines)
    left_out = len(rows) - _ROWS
    rows = dict(list(rows.items())[:_ROWS])
    based = any(dataset.baseline(line.largest) for line in lines)
    labels = list(dict.fromkeys(label for row in rows.values() for label, _ in row))
    figure, grid = new_figure(len(rows), 3 if based else 1, height=2.6, extra=0.4, sharex=True, sharey="col")
    counts = sorted({nodes for line in lines for nodes in line.groups})
    divisor, unit = seconds_label(max(dataset.time(group).high for line in lines for group in line.groups.values()))
    handles: dict[str, object] = {}
    drawn: list[list[float]] = [[], [], []]
    for (row, members), axes in zip(rows.items(), grid, strict=True):
        for label, line in members:
            style = line_style(labels.index(label), simulated=line.largest.simulated)
            columns: list[Callable[[RunGroup], Spread | None]] = [lambda group: dataset.time(group).divided_by(divisor)]
            if based:
                columns += [lambda group: _speedup(dataset, group), lambda group: _efficiency(dataset, group)]
            for column, value in enumerate(columns):
                handle = _plot(axes[column], line, value, style, drawn[column])
                handles.setdefault(label or "measured", handle)
        if row:
            axes[0].set_title(fitted(row, 64))
        _dress(axes, counts, f"{dataset.time_name} [{unit}]")
        if based:
            (ideal,) = axes[1].plot(counts, counts, color="#999999", linewidth=1, linestyle=":", zorder=1)
            axes[2].axhline(1, color="#999999", linewidth=1, linestyle=":", zorder=1)
            handles.setdefault("ideal", ideal)
    tidy(grid[0][0], drawn[0])
    if based:
        tidy(grid[0][1], drawn[1])
        if grid[0][1].get_yscale() != "log":
            grid[0][1].set_ylim(0, 1.08 * max(*drawn[1], float(counts[-1])))
        grid[0][2].set_ylim(0, max(1.1, 1.05 * max(drawn[2], default=1)))
    for lowest in grid[-1]:
        lowest.set_xlabel("nodes")
    if "ideal" in handles:
        handles["ideal"] = handles.pop("ideal")  # it comes last
    if len(handles) > 1:
        legend_below(figure, handles)
    title = f"{dataset.time_name.capitalize()}{', speedup and efficiency' if based else ''} against nodes"
    return [Drawing("scaling", title, _caption(dataset, based, left_out), to_svg(figure, "scaling"))]


def _rows(lines: list[NodesLine]) -> dict[str, list[tuple[str, NodesLine]]]:
    """Strategies get rows of their own where lines differ in something else too; else all lines are in one."""
    strategies = {line.largest.strategy for line in lines}
    others = {line.largest.conditions for line in lines}
    if len(strategies) < 2 or len(others) < 2:
        return {"": [(line.label, line) for line in lines]}
    rows: dict[str, list[tuple[str, NodesLine]]] = {}
    for line in lines:
        row = rows.setdefault(shown_value("strategy", line.largest.strategy), [])
        row.append((line.largest.conditions, line))
    return rows


def _speedup(dataset: Dataset, group: RunGroup) -> Spread | None:
    return Spread(1, 1, 1, group.n) if group.nodes == 1 else dataset.speedup(group)


def _efficiency(dataset: Dataset, group: RunGroup) -> Spread | None:
    speedup = _speedup(dataset, group)
    return speedup.divided_by(group.nodes) if speedup else None


def _plot(
    axes: Axes,
    line: NodesLine,
    value: Callable[[RunGroup], Spread | None],
    style: dict[str, Any],
    drawn: list[float],
) -> object:
    points = [(nodes, spread) for nodes in sorted(line.groups) if (spread := value(line.groups[nodes])) is not None]
    positions = [nodes for nodes, _ in points]
    medians = [spread.median for _, spread in points]
    below = [spread.median - spread.low for _, spread in points]
    above = [spread.high - spread.median for _, spread in points]
    drawn += [value for _, spread in points for value in (spread.low, spread.high)]
    (handle,) = axes.plot(positions, medians, **style)
    if any(spread.n > 1 for _, spread in points):
        axes.errorbar(
            positions, medians, [below, above], fmt="none", ecolor=handle.get_color(), elinewidth=1, capsize=2
        )
    return handle


def _dress(axes: list[Axes], counts: list[int], time: str) -> None:
    axes[0].set_ylabel(time)
    for each in axes:
        each.set_xticks(counts, [str(count) for count in counts])
        each.set_xlim(counts[0] - 0.25, counts[-1] + 0.25)
    if len(axes) > 1:
        axes[1].set_ylabel("speedup")
        axes[2].set_ylabel("efficiency")


def _caption(dataset: Dataset, based: bool, left_out: int) -> str:
    text = "One run each."
    if dataset.repeated:
        text = "Medians; bars are from the lowest to the highest repetition."
    if based:
        text += " Speedup is samples per second relative to the median on one node; efficiency is that for each node."
    if not dataset.same_work:
        text += " The runs have different amounts of work, so the time of an epoch is compared."
    if left_out > 0:
        text += f" The first {_ROWS} strategies are drawn; {left_out} more are in the tables."
    return text
