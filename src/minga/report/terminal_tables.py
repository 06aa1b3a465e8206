"""Tables for a terminal: who works and who waits, and several runs side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table

from minga.report.follow import RankProgress
from minga.report.numbers import duration, shown_metric, size
from minga.report.summary import RankSummary, Summary

__all__ = ["comparison_table", "metric_cell", "metric_heading", "rank_cells", "rank_table", "side_by_side"]

# A simulated run may have a thousand ranks; its events and --json have all of them.
_MOST_ROWS = 40


def rank_cells(ranks: Iterable[RankProgress | RankSummary]) -> list[list[str]]:
    """The headings, and a row for each rank, while a run goes on and when it is done."""
    ranks = sorted(ranks, key=lambda rank: rank.rank)
    hosts = any(rank.host for rank in ranks)
    rows = [["rank", *(["host"] if hosts else []), "role", "steps", "loss", "own work", "waiting", "sent"]]
    for rank in ranks[:_MOST_ROWS]:
        steps = f"{rank.steps:,}" if rank.samples else ""
        loss = f"{rank.loss:.4f}" if rank.loss is not None else ""
        times = [duration(rank.work_seconds), duration(rank.wait_seconds)]
        place = [str(rank.rank), *([rank.host or ""] if hosts else []), rank.role]
        rows.append([*place, steps, loss, *times, size(rank.bytes_sent)])
    if len(ranks) > _MOST_ROWS:
        rows.append(["...", *([""] if hosts else []), f"{len(ranks) - _MOST_ROWS:,} more"])
    return rows


def rank_table(ranks: Iterable[RankProgress | RankSummary]) -> Table:
    """Who works, who waits."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    headings, *rows = rank_cells(ranks)
    for name in headings:
        table.add_column(name, justify="left" if name in ("rank", "host", "role") else "right")
    for row in rows:
        table.add_row(*row)
    return table


def comparison_table(summaries: Sequence[Summary]) -> Table:
    """A row for each run; the speed is relative to the first run on one node."""
    baseline = next((summary for summary in summaries if summary.nodes == 1), None)
    metric = metric_heading(summary.metric for summary in summaries)
    table = side_by_side("strategy", "nodes", metric, "time", "samples/s", "speed", "waiting", "sent")
    table.caption = "One run each: differences of a few percent are noise. Speed is samples/s relative to one node."
    for summary in summaries:
        workers = [rank for rank in summary.ranks if rank.samples]
        waiting = sum(rank.wait_seconds for rank in workers) / len(workers) / summary.seconds
        speed = f"{summary.samples_per_second / baseline.samples_per_second:.2f}x" if baseline else "-"
        table.add_row(
            summary.strategy,
            str(summary.nodes),
            metric_cell(metric, summary.metric, summary.quality),
            duration(summary.seconds),
            f"{summary.samples_per_second:,.0f}",
            speed,
            f"{100 * waiting:.0f} %",
            size(summary.bytes_sent),
        )
    return table


def side_by_side(first: str, *others: str) -> Table:
    """For rows of results. No frame and short cells: it fits into 80 columns unless labels are long."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", caption_style="dim", caption_justify="left")
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def metric_heading(metrics: Iterable[str | None]) -> str:
    """The name of the metric that stands for all, if all rows have the same."""
    names = {metric for metric in metrics if metric is not None}
    return names.pop() if len(names) == 1 else "metric"


def metric_cell(heading: str, metric: str | None, value: float | None) -> str:
    """A row's value, with the metric's name where the heading is not it."""
    shown = shown_metric(metric, value)
    return shown if heading == metric or value is None else f"{metric} {shown}"
