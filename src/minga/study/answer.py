"""What came out of a study, cell by cell: medians with their spread, relative to one node.

for row in rows_of(outcome):
    print(row.label, row.seconds, row.speedup)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from minga.report.dataset.statistics import Spread
from minga.report.numbers import duration
from minga.report.summary import Summary, summarise
from minga.report.terminal_tables import metric_cell, metric_heading, side_by_side
from minga.study.cells import Cell
from minga.study.runner import Outcome

__all__ = ["CellAnswer", "answer_table", "rows_of"]


@dataclass(frozen=True, kw_only=True)
class CellAnswer:
    """One cell's runs."""

    cell: str
    label: str
    values: dict[str, Any]
    environment: str | None
    nodes: int
    runs: int
    """That came to a good end."""
    failed: int
    seconds: Spread | None
    """Of training, without starting and evaluating."""
    samples_per_second: Spread | None
    accuracy: Spread | None
    """Where there is a metric of this name."""
    speedup: float | None
    """Median samples per second relative to the one node that has all else in common; None without one."""
    metric: str | None = None
    """The metric that stands for all ..."""
    quality: Spread | None = None
    """... and its values."""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def rows_of(outcome: Outcome) -> list[CellAnswer]:
    """A row for each cell, in the order of the study."""
    summaries: dict[str, list[Summary]] = {}
    for result in outcome.done:
        assert result.run is not None
        summary = summarise(outcome.directory / result.run)
        if summary is not None:
            summaries.setdefault(result.cell, []).append(summary)
    speeds = {identity: Spread.of(each.samples_per_second for each in found) for identity, found in summaries.items()}
    rows = []
    for cell in outcome.study.cells:
        found = summaries.get(cell.identity, [])
        baseline = baseline_of(cell, outcome.study.cells)
        speed, alone = speeds.get(cell.identity), speeds.get(baseline.identity) if baseline else None
        rows.append(
            CellAnswer(
                cell=cell.identity,
                label=cell.label,
                values=dict(cell.values),
                environment=cell.environment,
                nodes=cell.experiment.cluster.nodes,
                runs=len(found),
                failed=sum(result.cell == cell.identity for result in outcome.failed),
                seconds=Spread.of(each.seconds for each in found),
                samples_per_second=speed,
                accuracy=Spread.of(each.accuracy for each in found),
                speedup=speed.median / alone.median if speed and alone and alone.median else None,
                metric=next((each.metric for each in found if each.metric is not None), None),
                quality=Spread.of(each.quality for each in found),
            )
        )
    return rows


def baseline_of(cell: Cell, cells: Sequence[Cell]) -> Cell | None:
    """One node with all else in common; for an environment, the first one with one node."""
    for other in cells:
        if other.experiment.cluster.nodes != 1 or (other.environment is None) != (cell.environment is None):
            continue
        rest = {path: value for path, value in other.values.items() if path != "cluster.nodes"}
        if cell.environment is not None or rest.items() <= cell.values.items():
            return other
    return None


def answer_table(rows: Sequence[CellAnswer]) -> Table:
    """For the terminal."""
    metric = metric_heading(row.metric for row in rows)
    table = side_by_side("cell", "n", "time", "from - to", metric, "speedup")
    table.caption = "Medians, with least and most. Speedup is samples/s relative to one node with all else in common."
    for row in rows:
        failed = f" ({row.failed} failed)" if row.failed else ""
        table.add_row(
            row.label,
            f"{row.runs}{failed}",
            duration(row.seconds.median) if row.seconds else "-",
            f"{row.seconds.low:.1f} - {row.seconds.high:.1f} s" if row.seconds else "-",
            metric_cell(metric, row.metric, row.quality.median if row.quality else None),
            f"{row.speedup:.2f}x" if row.speedup is not None else "-",
        )
    return table
