"""What the benchmarks have in common: ranks as pinned processes, alternating repetitions, medians, a result file."""

from __future__ import annotations

import json
import os
import platform
import shlex
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from minga.comm.rendezvous import hold_meeting
from minga.launch.processes import Job, processes

RESULTS = Path(__file__).parent / "results"


def alternate(
    contestants: Mapping[str, Callable[[], float]], repetitions: int, *, quiet: bool = False
) -> dict[str, list[float]]:
    """Seconds of each contestant in each repetition; they take turns, in an order that changes each time."""
    names = list(contestants)
    for name in names:  # warm up
        contestants[name]()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    rounds = range(repetitions)
    for turn in rounds if quiet else track(rounds, console=Console(stderr=True), transient=True):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            seconds[name].append(contestants[name]())
    return seconds


def on_ranks(function: str, ranks: int, arguments: Mapping[str, Any]) -> list[Any]:
    """Run `module:function` of this folder on some processes, each on a core of its own; what each one returns."""
    with tempfile.TemporaryDirectory() as folder, hold_meeting() as port:
        os.environ["PYTHONPATH"] = str(Path(__file__).parent)
        jobs = [
            Job(
                f"rank {rank}",
                "harness:rank_main",
                {"function": function, "rank": rank, "ranks": ranks, "port": port, "folder": folder, **arguments},
                f"{folder}/{rank}.log",
            )
            for rank in range(ranks)
        ]
        with processes(jobs, Path(folder) / "guard.log") as started:
            while started.running:
                for ended in started.wait(60):
                    if ended.code:
                        log = Path(f"{folder}/{ended.name.split()[1]}.log").read_text()
                        sys.exit(f"{ended.name} failed:\n{log}")
        return [json.loads(Path(f"{folder}/{rank}.json").read_text()) for rank in range(ranks)]


def rank_main(arguments: Mapping[str, Any]) -> int:
    """In a rank's process."""
    import importlib

    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[arguments["rank"] % len(cores)]})
    torch.set_num_threads(1)
    module, _, name = arguments["function"].partition(":")
    result = getattr(importlib.import_module(module), name)(arguments)
    Path(f"{arguments['folder']}/{arguments['rank']}.json").write_text(json.dumps(result))
    return 0


def save(name: str, rows: Sequence[Mapping[str, Any]], note: str, script: str | None = None) -> None:
    """Print the table and write the result file; `script`: the benchmark that made it, if its name is another."""
    show(rows, note)
    write(name, rows, note, script)


def show(rows: Sequence[Mapping[str, Any]], note: str) -> None:
    """Print the table; on its side where it has more columns than a terminal has room for."""
    columns = list(dict.fromkeys(column for row in rows for column in row))  # some rows may have more than others
    cells = [[_shown(row.get(column, "-")) for column in columns] for row in rows]
    table = Table(title=note, title_style="dim")
    if len(columns) > 10 and len(rows) < len(columns):
        table.add_column("")
        for _ in rows:
            table.add_column(justify="right")
        for number, column in enumerate(columns):
            table.add_row(column, *(row[number] for row in cells))
    else:
        for column in columns:
            numbers = all(isinstance(row.get(column, 0), int | float) for row in rows)
            table.add_column(column, justify="right" if numbers else "left")
        for cell in cells:
            table.add_row(*cell)
    Console().print(table)


def _shown(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def write(
    name: str, rows: Sequence[Mapping[str, Any]], note: str, script: str | None = None, folder: Path = RESULTS
) -> None:
    """Write the result file."""
    folder.mkdir(exist_ok=True, parents=True)
    content = {
        "command": shlex.join(["python", f"benchmarks/{script or name}.py", *sys.argv[1:]]),
        "note": note,
        "machine": {"cores": os.cpu_count(), "processor": platform.machine(), "torch": torch.__version__},
        "rows": list(rows),
    }
    (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")


def median_ratio(seconds: Mapping[str, Sequence[float]], ours: str, baseline: str) -> float:
    """The median over repetitions of ours / baseline, each pair measured side by side."""
    return statistics.median(mine / theirs for mine, theirs in zip(seconds[ours], seconds[baseline], strict=True))
