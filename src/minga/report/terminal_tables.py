"""Tables for a terminal: who works and who waits, and several runs side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table

from minga.report.follow import RankProgress
from minga.report.numbers import duration, shown_metric, size
from minga.report.summary import RankSummary, Summary

__all__ = ["comparison_table", "rank_cells", "rank_table"]

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
    # No frame and short cells: everything fits into 80 columns.
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", caption_style="dim", caption_justify="left")
    table.caption = "One run each: differences of a few percent are noise. Speed is samples/s relative to one node."
    table.add_column("strategy", overflow="fold")
    metrics = list(dict.fromkeys(summary.metric for summary in summaries if summary.metric is not None))
    quality = metrics[0] if len(metrics) == 1 else "metric"
    for name in ("nodes", quality, "time", "samples/s", "speed", "waiting", "sent"):
        table.add_column(name, justify="right", no_wrap=True)
    for summary in summaries:
        workers = [rank for rank in summary.ranks if rank.samples]
        waiting = sum(rank.wait_seconds for rank in workers) / len(workers) / summary.seconds
        speed = f"{summary.samples_per_second / baseline.samples_per_second:.2f}x" if baseline else "-"
        table.add_row(
            summary.strategy,
            str(summary.nodes),
            _quality(summary, several=len(metrics) > 1),
            duration(summary.seconds),
            f"{summary.samples_per_second:,.0f}",
            speed,
            f"{100 * waiting:.0f} %",
            size(summary.bytes_sent),
        )
    return table


def _quality(summary: Summary, *, several: bool) -> str:
    """The metric that stands for all, with its name where not all runs have the same."""
    value = shown_metric(summary.metric, summary.quality)
    return f"{summary.metric} {value}" if several and summary.metric is not None else value
