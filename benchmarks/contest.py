"""Contestants of `time_to_accuracy.py` and `never_slower.py`: how each one is run and measured, and what is kept.

Everybody trains the same samples in the same order with the same total batch, epochs and schedule, on hosts of a lab
that have one core each. Evaluations on the way count for nobody: neither their seconds nor their bytes.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from minga import Cluster, Experiment, Training, run
from minga.engines.scripts import run_script
from minga.errors import RunError
from minga.measure.event_reader import event_files, read_events
from minga.measure.events import Evaluated, Started
from minga.runs.network import Network

Turn = TypeVar("Turn")

FOLDER = Path(__file__).parent
SCRATCH = FOLDER.parent / "runs" / "benchmarks"
SINGLE, DDP, POWERSGD = "single", "ddp", "ddp+powersgd"
NOTHING = "local_sgd:period=1000000"
"""Two nodes that exchange nothing before the end: what this machine's two cores can do, whatever the strategy."""
POWERSGD_RANK = 2
STARTS = 3
"""How often a contestant is started before it is given up."""
FIRST_STEPS_SECONDS = 15.0
"""Where DDP is not run to its end, how long its first steps are looked at."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A recipe that all contestants share."""

    name: str
    title: str
    function: str
    """In recipes.py."""
    epochs: int
    total_batch: int
    evaluate_every: float = 1.0
    """In epochs."""

    @property
    def workload(self) -> str:
        return f"{FOLDER / 'recipes.py'}:{self.function}"


PROBLEMS = {
    "fashion-mnist": Problem(
        name="fashion-mnist",
        title="CNN on Fashion-MNIST",
        function="fashion_mnist",
        epochs=5,
        total_batch=128,
    ),
    "shakespeare": Problem(
        name="shakespeare",
        title="Transformer on Shakespeare",
        function="shakespeare",
        epochs=4,
        total_batch=64,
        evaluate_every=0.5,
    ),
}
QUICK_PROBLEMS = {
    name: Problem(**{**asdict(problem), "function": f"{problem.function}_quick", "epochs": 2})
    for name, problem in PROBLEMS.items()
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came out of a contestant's run."""

    seconds: float
    """Of training."""
    bytes: float
    """Sent by all nodes, as their interfaces counted them, without headers."""
    steps: int
    curve: list[list[float]] = field(default_factory=list)
    """Seconds of training, test accuracy and step at each evaluation; empty where only first steps were run."""
    measured_steps: int | None = None
    """Where `seconds` and `bytes` are extrapolated: from how many steps."""
    aborts: int = 0
    """Starts that ended with a dead process before this one."""
    died: bool = False
    """Whether none of its starts came to an end: nothing else is known then."""

    @property
    def accuracy(self) -> float | None:
        return self.curve[-1][1] if self.curve else None


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is measured once."""

    problem: Problem
    contestant: str
    """`single`, `ddp`, `ddp+powersgd` or a strategy of Minga."""
    nodes: int
    bandwidth: float
    """Mbit/s."""
    seed: int
    first_steps: bool = False
    """Only the first steps of DDP, whose result does not depend on the bandwidth."""
    repetition: int = 0
    """The same again, on a machine whose speed is another one every minute."""

    def experiment(self, folder: str) -> Experiment:
        theirs = self.contestant in (DDP, POWERSGD)
        return Experiment(
            workload=self.problem.workload,
            strategy=None if theirs else self.contestant,  # type: ignore[arg-type]
            cluster=Cluster(
                nodes=self.nodes,
                network=Network(bandwidth=self.bandwidth * 1e6),
                pin=True,
                transport="gloo" if theirs else "tcp",
                timeout_seconds=30 if theirs else 120,  # how long a start of the hook hangs that has gone wrong
            ),
            training=Training(
                epochs=self.problem.epochs,
                total_batch=self.problem.total_batch,
                evaluate_every=self.problem.evaluate_every,
                seed=self.seed,
            ),
            runs=folder,
        )


def measure(cell: Cell) -> Outcome:
    """Run a contestant. One of torch's that dies is started again, and deaths are counted; Minga's must not die."""
    if cell.contestant not in (DDP, POWERSGD):
        with tempfile.TemporaryDirectory() as folder:
            return Outcome(**_minga(cell, folder))
    for aborts in range(STARTS):
        try:
            with tempfile.TemporaryDirectory() as folder:
                return Outcome(**_ddp(cell, folder), aborts=aborts)
        except RunError as error:
            told = f"{cell.contestant}, start {aborts + 1} of {STARTS}: {error}"
            Console(stderr=True).print(told, style="dim", markup=False)
    return Outcome(seconds=0.0, bytes=0.0, steps=0, aborts=STARTS, died=True)


def between(first: Outcome, second: Outcome) -> Outcome:
    """The same training measured twice: its times half way between the two."""
    seconds = (first.seconds + second.seconds) / 2
    curve = [[at * seconds / first.seconds, accuracy, step] for at, accuracy, step in first.curve]
    return replace(first, seconds=seconds, curve=curve)


def _minga(cell: Cell, folder: str) -> dict[str, Any]:
    summary = run(cell.experiment(folder))
    began, evaluating = 0.0, 0.0
    curve: list[list[float]] = []
    for event in read_events(event_files(Path(summary.run))[0]):
        if isinstance(event, Started):
            began = event.time
        elif isinstance(event, Evaluated):
            evaluating += event.seconds
            curve.append([event.time - began - evaluating, event.metrics["accuracy"], event.step])
    curve[-1][0] = summary.seconds  # of the slowest rank; the last evaluation comes after it
    sent = sum(rank.interface["payload_sent"] for rank in summary.ranks if rank.interface)
    return {"seconds": summary.seconds, "bytes": sent, "steps": summary.steps, "curve": curve}


def _ddp(cell: Cell, folder: str) -> dict[str, Any]:
    asked = {
        "workload": cell.problem.workload,
        "epochs": cell.problem.epochs,
        "total_batch": cell.problem.total_batch,
        "evaluate_every": cell.problem.evaluate_every,
        "seed": cell.seed,
        "powersgd_rank": POWERSGD_RANK if cell.contestant == POWERSGD else None,
        "limit_seconds": FIRST_STEPS_SECONDS if cell.first_steps else None,
        "out": folder,
    }
    run_script(cell.experiment(folder), FOLDER / "ddp_script.py", [json.dumps(asked)], show=False)
    ranks = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(cell.nodes)]
    return {
        **ranks[0],
        "seconds": max(rank["seconds"] for rank in ranks),
        "bytes": sum(rank["bytes"] for rank in ranks),
    }


class Kept:
    """Outcomes on disk, one line each, so that a benchmark that was stopped goes on where it was.

    With each contestant's outcome is that of one node, measured in the same sitting: timings drift over hours.
    """

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self._path = path
        self._found: dict[str, tuple[Outcome, Outcome | None]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if fresh:
            path.unlink(missing_ok=True)
        for line in path.read_text().splitlines(keepends=True) if path.is_file() else []:
            if line.endswith("\n"):
                self._take(json.loads(line))

    def __contains__(self, cell: Cell) -> bool:
        return _key(cell) in self._found

    def __getitem__(self, cell: Cell) -> tuple[Outcome, Outcome | None]:
        return self._found[_key(cell)]

    def keep(self, cell: Cell, outcome: Outcome, one_node: Outcome | None = None) -> None:
        entry = {
            "revision": _revision(),
            "cell": asdict(cell),
            "outcome": asdict(outcome),
            "one_node": asdict(one_node) if one_node is not None else None,
        }
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        self._take(entry)

    def _take(self, entry: Mapping[str, Any]) -> None:
        beside = entry["one_node"]
        self._found[json.dumps(entry["cell"])] = (Outcome(**entry["outcome"]), Outcome(**beside) if beside else None)


def _revision() -> str:
    """Of the code, so that a kept run can be told from one of today."""
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or "unknown"


def _key(cell: Cell) -> str:
    return json.dumps(asdict(cell))


def rotated(cells: Sequence[Turn], turn: int) -> Iterator[Turn]:
    """In an order that is another one in each turn, so that nobody is always the first."""
    at = turn % len(cells)
    yield from cells[at:]
    yield from cells[:at]
