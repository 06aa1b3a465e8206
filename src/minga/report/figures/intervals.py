"""A dot with its range for each group: training time, time to a target, bytes sent, energy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from minga.report.dataset.groups import Dataset, RunGroup
from minga.report.dataset.statistics import Spread
from minga.report.dataset.targets import Target, reached
from minga.report.figures.style import COLORS, Drawing, fitted, new_figure, plain_logarithmic, seconds_label, to_svg

__all__ = ["Panel", "draw_intervals", "target_times", "times", "traffic"]

_MOST = 60


@dataclass(frozen=True)
class Panel:
    """One column of dots."""

    axis: str
    values: Sequence[Spread | None]
    """Of each group; infinite medians are drawn at the edge as `never`."""
    remarks: list[str] | None = None
    """Written beside the dots."""
    reference: float | None = None
    """A line to compare with."""


def draw_intervals(
    name: str, title: str, caption: str, groups: Sequence[RunGroup], panels: Sequence[Panel], nodes: Sequence[int]
) -> Drawing:
    """Groups from top to bottom, panels side by side; `nodes`: all numbers of nodes, which have a color each."""
    if len(groups) > _MOST:
        caption += f" The first {_MOST} of {len(groups)} groups are drawn; the tables have all."
        groups = groups[:_MOST]
    figure, grid = new_figure(1, len(panels), height=0.75 + 0.24 * len(groups), sharey=True)
    places = range(len(groups))
    counts = list(nodes)
    for axes, panel in zip(grid[0], panels, strict=True):
        finite = [spread.high if math.isfinite(spread.high) else spread.median for spread in panel.values if spread]
        finite = [value for value in finite if math.isfinite(value)]
        low = [spread.low for spread in panel.values if spread and spread.low > 0 and math.isfinite(spread.low)]
        logarithmic = bool(low) and max(finite, default=1) > 20 * min(low)
        edge = max(finite, default=1.0) * (1.5 if logarithmic else 1.06)
        for place, group in zip(places, groups, strict=True):
            spread = panel.values[place]
            if spread is None:
                continue
            color = COLORS[counts.index(group.nodes) % len(COLORS)]
            if not math.isfinite(spread.median):
                axes.text(
                    edge, place, "never", ha="right", va="center", fontsize=8, color="#A33B00", fontstyle="italic"
                )
                continue
            high = min(spread.high, edge)
            axes.plot([spread.low, high], [place, place], color=color, linewidth=2.5, alpha=0.35, solid_capstyle="butt")
            axes.plot([spread.median], [place], "o", color=color, fillstyle="none" if group.simulated else "full")
            if panel.remarks is not None and panel.remarks[place]:
                axes.annotate(
                    panel.remarks[place], (high, place), (7, 0), textcoords="offset points", va="center", fontsize=7.5
                )
        if logarithmic:
            axes.set_xscale("log")
            plain_logarithmic(axes.xaxis)
            axes.set_xlim(0.8 * min(low), edge * (2.2 if panel.remarks else 1))
        else:
            axes.set_xlim(0, edge * (1.25 if panel.remarks else 1))
        if panel.reference is not None:
            axes.axvline(panel.reference, color="#999999", linewidth=1, linestyle=":", zorder=1)
        axes.set_xlabel(panel.axis)
        axes.grid(visible=False, axis="y")
    first = grid[0][0]
    first.set_yticks(list(places), [fitted(group.label) for group in groups])
    first.set_ylim(len(groups) - 0.5, -0.5)
    return Drawing(name, title, caption, to_svg(figure, name))


def times(dataset: Dataset) -> list[Drawing]:
    """For groups that all have as many nodes, where no line over nodes can be drawn."""
    if len(dataset.groups) < 2:
        return []
    spreads = [dataset.time(group) for group in dataset.groups]
    divisor, unit = seconds_label(max(spread.high for spread in spreads))
    panel = Panel(f"{dataset.time_name} [{unit}]", [spread.divided_by(divisor) for spread in spreads])
    caption = "Dots are medians, bars are from the lowest to the highest repetition."
    title = f"{dataset.time_name.capitalize()} {'of' if dataset.same_work else 'in'} each group"
    return [draw_intervals("times", title, caption, dataset.groups, [panel], dataset.node_counts)]


def target_times(dataset: Dataset, target: Target) -> list[Drawing]:
    results = [reached(group, target) for group in dataset.groups]
    finite = [spread.median for spread, _ in results if math.isfinite(spread.median)]
    if not finite or len(dataset.groups) < 2:
        return []
    divisor, unit = seconds_label(max(finite))
    remarks = [
        f"{count} of {group.n} get there" if 0 < count < group.n else ""
        for group, (_, count) in zip(dataset.groups, results, strict=True)
    ]
    values = [spread.divided_by(divisor) for spread, _ in results]
    caption = f"Training time until the first evaluation with {target.text} or better ({target.reason})."
    caption += " Dots are medians, bars the range; “never”: half of the runs or more did not get there."
    panel = Panel(f"training time until {fitted(target.text)} [{unit}]", values, remarks if any(remarks) else None)
    return [
        draw_intervals(
            "time-to-target", f"Time to {target.text}", caption, dataset.groups, [panel], dataset.node_counts
        )
    ]


def traffic(dataset: Dataset) -> list[Drawing]:
    groups = [group for group in dataset.groups if group.bytes_sent.median > 0]
    if not groups:
        return []
    mega = [group.bytes_sent.divided_by(1e6) for group in groups]
    caption = "All ranks together, counted where ranks hand messages to the transport: without headers and evaluations."
    panels = [Panel("sent by all ranks [MB]", mega), Panel("messages", [group.messages_sent for group in groups])]
    return [draw_intervals("traffic", "Bytes and messages sent", caption, groups, panels, dataset.node_counts)]
