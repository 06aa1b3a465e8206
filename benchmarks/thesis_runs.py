"""The runs of `theses.py`: one cell is trained once, its row is kept on disk, so that a stopped benchmark goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from minga import Cluster, Experiment, Summary, Training, run
from minga.runs.network import Network

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is trained once."""

    workload: str
    strategy: str
    nodes: int
    seed: int
    bandwidth: float | None = None
    """Mbit/s between hosts of a lab, each kept on a core of its own; None: processes of this machine."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Training`."""

    @property
    def title(self) -> str:
        where = "" if self.bandwidth is None else f" at {self.bandwidth:g} Mbit/s"
        return f"{self.workload.rpartition('/')[2]}, {self.strategy}, {self.nodes} nodes{where}, seed {self.seed}"

    def experiment(self, folder: Path) -> Experiment:
        lab = self.bandwidth is not None
        network = Network(bandwidth=self.bandwidth * 1e6) if self.bandwidth is not None else None
        return Experiment(
            workload=self.workload,
            strategy=self.strategy,  # type: ignore[arg-type]
            cluster=Cluster(nodes=self.nodes, network=network, pin=lab),
            training=Training(**{"evaluate_every": 0, **self.training}, seed=self.seed),
            runs=str(folder),
        )


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some cells that answer one question, and what is told of each."""

    title: str
    cells: Sequence[Cell]
    tell: Callable[[Summary], Sequence[Row]] = lambda summary: [{}]
    """Columns beside those that all have; several rows where a run is looked at in several ways."""


def row_of(cell: Cell, summary: Summary) -> Row:
    return {
        "workload": cell.workload.rpartition("/")[2],
        "strategy": cell.strategy,
        "nodes": cell.nodes,
        "Mbit/s": cell.bandwidth,
        "seed": cell.seed,
        "epochs": round(summary.epochs, 3),
        "steps": summary.steps,
        "batch of all nodes": summary.batch * summary.nodes,
        "seconds": summary.seconds,
        "samples/s": summary.samples_per_second,
        "MB sent": summary.bytes_sent / 1e6,
        str(summary.metric): summary.quality,
    }


class KeptRows:
    """Rows on disk, a line for each cell; a line that was cut off counts for nothing."""

    def __init__(self, path: Path, *, fresh: bool) -> None:
        self._path = path
        self._found: dict[str, list[Row]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if fresh:
            path.unlink(missing_ok=True)
        for line in path.read_text().splitlines(keepends=True) if path.is_file() else []:
            if line.endswith("\n"):
                entry = json.loads(line)
                self._found[_key(entry["cell"])] = entry["rows"]

    def of(self, cell: Cell) -> list[Row] | None:
        return self._found.get(_key(asdict(cell)))

    def keep(self, cell: Cell, rows: Sequence[Row]) -> None:
        with self._path.open("a") as file:
            known = {**asdict(cell), "workload": _place(cell.workload)}
            file.write(json.dumps({"cell": known, "rows": list(rows)}) + "\n")
        self._found[_key(asdict(cell))] = list(rows)


def _key(cell: Mapping[str, Any]) -> str:
    return json.dumps({**cell, "workload": _place(cell["workload"])}, sort_keys=True)


def _place(workload: str) -> str:
    """Without where a recipe lies, which is another place in another checkout."""
    return workload.rpartition("/")[2]


def measure(part: Part, kept: KeptRows, folder: Path, advance: Callable[[str], None]) -> Iterator[list[Row]]:
    """Train what is missing; after each cell all rows there are."""
    for cell in part.cells:
        advance(cell.title)
        if kept.of(cell) is None:
            summary = run(cell.experiment(folder))
            kept.keep(cell, [{**row_of(cell, summary), **more} for more in part.tell(summary)])
        yield [row for each in part.cells for row in kept.of(each) or []]


@contextmanager
def progress_over(cells: int) -> Iterator[Callable[[str], None]]:
    """A bar; what it gives is called with the title of the cell that begins."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=cells)
        begun = 0

        def advance(title: str) -> None:
            nonlocal begun
            bar.update(task, description=title, completed=begun)
            if not bar.console.is_terminal:
                bar.console.print(f"{begun + 1} of {cells}: {title}", markup=False, highlight=False)
            begun += 1

        yield advance
        bar.update(task, completed=cells)
