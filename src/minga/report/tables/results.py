"""What came out: groups, single runs, times to the target, and the data behind the curves."""

from __future__ import annotations

import math
from collections.abc import Callable

from minga.report.dataset.groups import Dataset, RunGroup
from minga.report.dataset.statistics import Spread
from minga.report.dataset.targets import Target, reached
from minga.report.figures.curves import curve_of, file_name
from minga.report.numbers import shown_metric
from minga.report.tables.table import (
    Column,
    Table,
    show_bytes,
    show_number,
    show_percent,
    show_ratio,
    show_seconds,
)

__all__ = ["curve_tables", "group_table", "metric_tables", "run_table", "target_table"]

_LARGEST = 30


def group_table(dataset: Dataset) -> Table:
    metrics = dataset.metrics()[:4]
    columns = [
        Column("group", "group", text=True),
        Column("nodes", "nodes"),
        Column("n", "n"),
        Column("seconds", "training time", show_seconds, spread=True),
        Column("samples_per_second", "samples/s", show_number, spread=True),
        Column("speedup", "speedup", show_ratio, spread=True),
        Column("efficiency", "efficiency", show_percent, spread=True),
        *(Column(name.replace(" ", "_"), name, _metric_shown(name), spread=True) for name in metrics),
        Column("exchange_share", "exchange", show_percent),
        Column("waiting_share", "of it waiting", show_percent),
    ]
    rows = []
    for group in dataset.groups:
        speedup = dataset.speedup(group)
        several = group.nodes > 1
        exchange = group.share("exchange", "wait")
        rows.append(
            [
                group.label,
                group.nodes,
                group.n,
                group.seconds,
                group.samples_per_second,
                speedup,
                speedup.divided_by(group.nodes) if speedup else None,
                *(group.metric(name) for name in metrics),
                exchange if several else None,
                group.share("wait") / exchange if several and exchange else None,
            ]
        )
    note = "One run each: differences of a few percent are noise."
    if dataset.repeated:
        note = "Medians, each with the lowest and the highest repetition; n is the number of repetitions."
    return Table("groups", "All groups", columns, rows, note)


def _metric_shown(name: str) -> Callable[[float], str]:
    return lambda value: shown_metric(name, value)


def run_table(dataset: Dataset) -> Table:
    metrics = dataset.metrics()[:4]
    columns = [
        Column("run", "run", text=True),
        Column("group", "group", text=True),
        Column("seed", "seed"),
        Column("seconds", "training time", show_seconds),
        Column("steps", "steps", show_number),
        Column("epochs", "epochs", show_number),
        *(Column(name.replace(" ", "_"), name, _metric_shown(name)) for name in metrics),
        Column("bytes_sent", "sent", show_bytes),
        Column("simulated", "simulated", text=True),
    ]
    rows = [
        [
            run.directory.name,
            group.label,
            run.seed,
            run.finished.seconds,
            run.finished.steps,
            run.finished.epochs,
            *(run.finished.metrics.get(name) for name in metrics),
            run.finished.bytes_sent,
            "simulated" if run.simulated else None,
        ]
        for group in dataset.groups
        for run in group.runs
    ]
    return Table("runs", "All runs", columns, rows)


def target_table(dataset: Dataset, target: Target) -> Table:
    columns = [
        Column("group", "group", text=True),
        Column("target", "", text=True),
        Column("seconds_to_target", f"time to {target.text}", show_seconds, spread=True),
        Column("reached", "runs that reach it", text=True),
    ]
    rows = []
    for group in dataset.groups:
        spread, count = reached(group, target)
        rows.append([group.label, target.text, spread, f"{count} of {group.n}"])
    return Table("time-to-target", f"Time to {target.text}", columns, rows, f"The target is {target.reason}.")


def curve_tables(dataset: Dataset) -> list[Table]:
    """What the curves are drawn from; as CSV only."""
    tables = []
    for metric in dataset.metrics() or ["training loss"]:
        rows = [
            [group.label, epoch, seconds, value]
            for group in dataset.groups
            for epoch, seconds, value in _entries(group, metric)
        ]
        columns = [
            Column("group", "group", text=True),
            Column("epoch", "epoch"),
            Column("seconds", "training time"),
            Column(metric.replace(" ", "_"), metric, spread=True),
        ]
        tables.append(Table(f"{file_name(metric)}-curves", metric, columns, rows, only_csv=True))
    return tables


def metric_tables(dataset: Dataset) -> list[Table]:
    """Metrics that are tables, such as confusion matrices: those of each group's first run, at its end."""
    tables = []
    for number, group in enumerate(dataset.groups, start=1):
        for metric, rows in group.runs[0].finished.tables.items():
            columns = [
                Column("row", "", text=True),
                *(Column(str(at), str(at), show_number) for at in range(len(rows))),
            ]
            tables.append(
                Table(
                    f"{file_name(metric)}-{number}",
                    f"{metric[:1].upper()}{metric[1:]}: {group.label}",
                    columns,
                    [[str(at), *row] for at, row in enumerate(rows)],
                    f"Of {group.runs[0].directory.name}. A row for each true class, a column for what was predicted.",
                    only_csv=len(rows) > _LARGEST,
                )
            )
    return tables


def _entries(group: RunGroup, metric: str) -> list[tuple[float, float, Spread]]:
    each = curve_of(group, metric)
    entries = zip(each.epochs, each.seconds, each.values, strict=True)
    return [(epoch, seconds, value) for epoch, seconds, value in entries if math.isfinite(seconds)]
