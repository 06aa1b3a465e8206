"""One run's directory as data: its summary, its curves, its samples. Nothing that a run brings along is executed.

run = read_run(Path("runs/20260101-120000-digits-ring-4"))
run.curve[-1].metrics["accuracy"], run.curve[-1].seconds
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minga.config import FieldError, build
from minga.errors import ConfigError, UsageError
from minga.experiment import Experiment
from minga.measure.events import event_files
from minga.report.dataset.settings import settings_of
from minga.report.summary import RankSummary, Summary, summarise
from minga.strategies import AllReduce, ParameterServer

__all__ = ["Point", "Run", "Sample", "is_run", "read_run"]


@dataclass(frozen=True)
class Point:
    """The model's quality at some moment."""

    epoch: float
    seconds: float
    """Of training until then: evaluations do not count."""
    metrics: dict[str, float]


@dataclass(frozen=True)
class Sample:
    """What one rank used in an interval."""

    end: float
    """Seconds since the run began to train, evaluations included."""
    seconds: float
    cpu_seconds: float
    memory_bytes: float
    bytes_sent: float | None
    bytes_received: float | None
    watts: float
    estimated: bool


@dataclass(eq=False)
class Run:
    """A run as it lies on disk."""

    directory: Path
    settings: dict[str, Any]
    """Every setting by its path, without those that only say where and in which repetition."""
    seed: int
    lockstep: bool
    """Whether all workers are known to be at the same step always, so that one can hold up the others."""
    summary: Summary | None = None
    problem: str | None = None
    """Why it can't be counted: it failed, or it is not finished."""
    damaged_lines: int = 0
    curve: list[Point] = field(default_factory=list)
    training_losses: list[Point] = field(default_factory=list)
    samples: dict[int, list[Sample]] = field(default_factory=dict)
    power: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    """Seconds since the beginning, watts by device: counters of the whole machine."""
    network: dict[str, Any] | None = None
    simulated: bool = False

    @property
    def finished(self) -> Summary:
        assert self.summary is not None, "only finished runs are in groups"
        return self.summary

    @property
    def workers(self) -> list[RankSummary]:
        return [rank for rank in self.finished.ranks if rank.samples]

    def name_of(self, rank: int) -> str:
        """The host's name in a lab, else the rank's number."""
        host = next((each.host for each in self.finished.ranks if each.rank == rank), None)
        return host or f"rank {rank}"

    def alone_on_its_host(self, rank: int) -> bool:
        """Whether no other rank's messages go through the same interface."""
        hosts = [each.host for each in self.finished.ranks]
        return hosts[rank] is not None and hosts.count(hosts[rank]) == 1


def is_run(directory: Path) -> bool:
    return (directory / "experiment.toml").is_file()


def read_run(directory: Path) -> Run:
    """Read a run; what is wrong with it is in `problem` and `damaged_lines`."""
    experiment, settings = _experiment(directory)
    strategy = experiment.chosen_strategy
    lockstep = isinstance(strategy, AllReduce) or (isinstance(strategy, ParameterServer) and strategy.bound == 0)
    run = Run(
        directory=directory,
        settings=settings,
        seed=experiment.training.seed,
        lockstep=lockstep and ".py:" not in settings["strategy"],
        simulated=(directory / "simulated").exists(),
    )
    _read_events(run)
    run.network = _network(directory, run)
    if run.problem is None:
        try:
            run.summary = summarise(directory, experiment)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            run.problem = f"its events can't be understood ({type(error).__name__}: {error})"
        if run.problem is None and (run.summary is None or not run.summary.samples or run.summary.seconds <= 0):
            run.problem = "it never trained a step"
    return run


def _experiment(directory: Path) -> tuple[Experiment, dict[str, Any]]:
    path = directory / "experiment.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"can't read {path}: {error}") from None
    given = table.get("strategy")
    name = given.get("name") if isinstance(given, dict) else given
    own_file = isinstance(name, str) and ".py:" in name
    if own_file:
        # A report only reads: a strategy in a user's file may be gone, and loading it would run it. What depends on
        # how many hosts it has goes with it, since it would be checked against another strategy's number.
        table.pop("strategy")
        table["cluster"] = {**table.get("cluster", {}), "cpu": []}
        network = table["cluster"].pop("network", None)
    try:
        experiment = build(Experiment, table)
    except FieldError as error:
        raise ConfigError(f"{path}: {error}") from None
    settings = settings_of(experiment)
    if own_file:
        settings["strategy"] = str(name)
        settings |= {f"cluster.network.{key}": value for key, value in (network or {}).items()}
    return experiment, settings


def _lines(path: Path, run: Run) -> Iterator[dict[str, Any]]:
    """The events of a file but for the steps of ranks that are not drawn; damaged lines are counted."""
    drawn = path.stem in ("rank-0", "machine")
    with path.open("rb") as lines:
        for line in lines:
            whole = line.endswith(b"}\n")
            if not line.endswith(b"\n") or (not drawn and whole and line.startswith(b'{"event": "step"')):
                continue
            try:
                event = json.loads(line)
            except ValueError:
                run.damaged_lines += 1
                continue
            if isinstance(event, dict) and isinstance(event.get("time"), int | float):
                yield event
            else:
                run.damaged_lines += 1


def _read_events(run: Run) -> None:
    files = event_files(run.directory)
    began: float | None = None
    ranks, changed, finished = 0, 0.0, set()
    for path in files:
        rank = int(path.stem.removeprefix("rank-"))
        evaluating = idle = last = 0.0
        for event in _lines(path, run):
            try:
                kind = event["event"]
                if kind == "resumed":  # nobody trained since the event before it
                    idle += event["time"] - last
                last = event["time"]
                if kind in ("started", "resumed", "regrouped") and event["time"] >= changed:
                    ranks, changed = event["ranks"], event["time"]
                if kind == "started":
                    began = event["time"] if began is None else began
                elif kind == "failed" and not (run.problem and event["consequence"]):
                    run.problem = f"rank {event['rank']} failed at step {event['step']}: {event['message']}"
                elif kind == "finished":
                    finished.add(rank)
                elif kind == "evaluated" and began is not None:
                    evaluating += event["seconds"]
                    run.curve.append(_point(event, event["time"] - began - evaluating - idle, event["metrics"]))
                elif kind == "step" and rank == 0 and began is not None and event["loss"] is not None:
                    seconds = event["time"] - began - evaluating - idle
                    run.training_losses.append(_point(event, seconds, {"training loss": event["loss"]}))
                elif kind == "sample" and began is not None and event["seconds"] > 0:
                    run.samples.setdefault(rank, []).append(_sample(event, began + idle))
            except (KeyError, TypeError, ValueError, AttributeError):
                run.damaged_lines += 1
    if not files or began is None:
        run.problem = run.problem or "it has no events: it never began to train"
    elif len(finished) >= ranks:  # whoever failed before, or was killed: the others have gone on
        run.problem = None
    elif run.problem is None:
        run.problem = f"it is not finished: {len(finished)} of {ranks} ranks say that they are done"
    machine = run.directory / "events" / "machine.jsonl"
    if began is not None and machine.is_file():
        for event in _lines(machine, run):
            if event.get("event") == "power" and isinstance(event.get("watts"), dict):
                run.power.append((event["time"] - began, {str(name): float(w) for name, w in event["watts"].items()}))


def _point(event: dict[str, Any], seconds: float, metrics: dict[str, Any]) -> Point:
    numbers = {str(name): float(value) for name, value in metrics.items() if isinstance(value, int | float)}
    return Point(float(event["epoch"]), max(seconds, 0.0), numbers)


def _sample(event: dict[str, Any], began: float) -> Sample:
    def optional(name: str) -> float | None:
        return None if event.get(name) is None else float(event[name])

    return Sample(
        end=event["time"] - began,
        seconds=float(event["seconds"]),
        cpu_seconds=float(event["cpu_seconds"]),
        memory_bytes=float(event["memory_bytes"]),
        bytes_sent=optional("bytes_sent"),
        bytes_received=optional("bytes_received"),
        watts=float(event["watts"]),
        estimated=bool(event["estimated"]),
    )


def _network(directory: Path, run: Run) -> dict[str, Any] | None:
    path = directory / "network.json"
    if not path.is_file():
        return None
    try:
        network = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        network = None
    if not isinstance(network, dict):
        run.problem = run.problem or "its network.json is damaged"
        return None
    return network
