"""One run's directory as data: its summary, its curves, its samples. Nothing that a run brings along is executed.

run = read_run(Path("runs/20260101-120000-digits-ring-4"))
run.curve[-1].metrics["accuracy"], run.curve[-1].seconds
"""

from __future__ import annotations

import json
import tomllib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from minga.base.config import FieldError, build
from minga.errors import ConfigError, UsageError
from minga.measure.events import event_files
from minga.report.dataset.settings import settings_of
from minga.report.summary import RankSummary, Summary, summarise
from minga.runs.directory import SIMULATED
from minga.runs.experiment import Experiment
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
    lost: list[int] = field(default_factory=list)
    """Ranks that were there, and that the others have gone on without to the end."""
    damaged_lines: int = 0
    curve: list[Point] = field(default_factory=list)
    training_losses: list[Point] = field(default_factory=list)
    samples: dict[int, list[Sample]] = field(default_factory=dict)
    power: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    """Seconds since the beginning, watts by device: counters of the whole machine."""
    network: dict[str, Any] | None = None
    simulated: bool = False
    lower_is_better: set[str] = field(default_factory=set)
    """Of which metrics, as its evaluations say; empty if they don't."""

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
        simulated=(directory / SIMULATED).exists(),
    )
    _read_events(run, elastic=experiment.elastic)
    if run.lost:  # who was lost has done fewer steps, so nobody's times tell who held up whom
        run.lockstep = False
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


def _lines(path: Path, run: Run, *, steps: bool = True) -> Iterator[dict[str, Any]]:
    """The events of a file, without its many `steps` where they are not wanted; damaged lines are counted."""
    with path.open("rb") as lines:
        for line in lines:
            whole = line.endswith(b"}\n")
            if not line.endswith(b"\n") or (not steps and whole and line.startswith(b'{"event": "step"')):
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


def _read_events(run: Run, *, elastic: bool) -> None:
    files = event_files(run.directory)
    leader = _leader(files) if elastic else 0
    began: float | None = None
    # Times go with what they are needed for: the last word on how many ranks there are, points of curves, and
    # evaluations, which the first rank of the moment tells of.
    together = (0.0, 0)
    curve: list[tuple[float, Point]] = []
    losses: list[tuple[float, Point]] = []
    evaluations: list[tuple[float, float]] = []
    finished = set()
    for path in files:
        rank = int(path.stem.removeprefix("rank-"))
        idle = last = 0.0
        for event in _lines(path, run, steps=rank == leader):
            try:
                kind, time = event["event"], event["time"]
                if kind == "resumed":  # nobody trained since the event before it
                    idle += time - last
                last = time
                if kind in ("started", "resumed", "recovered"):
                    together = max(together, (time, event["ranks"]))
                if kind == "started":
                    began = time if began is None else began
                elif kind == "failed" and not (run.problem and event["consequence"]):
                    run.problem = f"rank {event['rank']} failed at step {event['step']}: {event['message']}"
                elif kind == "finished":
                    finished.add(rank)
                elif kind == "evaluated" and began is not None:
                    evaluations.append((time, float(event["seconds"])))
                    curve.append((time, _point(event, time - began - idle, event["metrics"])))
                    run.lower_is_better.update(map(str, event.get("lower_is_better", ())))
                elif kind == "step" and rank == leader and began is not None and event["loss"] is not None:
                    losses.append((time, _point(event, time - began - idle, {"training loss": event["loss"]})))
                elif kind == "sample" and began is not None and event["seconds"] > 0:
                    run.samples.setdefault(rank, []).append(_sample(event, began + idle))
            except (KeyError, TypeError, ValueError, AttributeError):
                run.damaged_lines += 1
    run.curve, run.training_losses = _aside(evaluations, curve), _aside(evaluations, losses)
    # Where ranks may be lost, all is done when the model is there, whoever else has lived to tell.
    done = len(finished) >= together[1] or (elastic and (run.directory / "model.safetensors").is_file())
    if not files or began is None:
        run.problem = run.problem or "it has no events: it never began to train"
    elif done and (elastic or run.problem is None):
        run.problem = None  # where others have gone on, one that failed is one that was lost
        run.lost = sorted({int(path.stem.removeprefix("rank-")) for path in files} - finished)
    elif run.problem is None:
        run.problem = f"it is not finished: {len(finished)} of {together[1]} ranks say that they are done"
    machine = run.directory / "events" / "machine.jsonl"
    if began is not None and machine.is_file():
        for event in _lines(machine, run):
            if event.get("event") == "power" and isinstance(event.get("watts"), dict):
                run.power.append((event["time"] - began, {str(name): float(w) for name, w in event["watts"].items()}))


def _leader(files: Sequence[Path]) -> int:
    """Whose file goes on to the end: that of the rank which was the first of all when ranks last formed anew."""
    last = (0.0, 0)
    for path in files:
        with path.open("rb") as lines:
            for line in lines:
                if line.startswith(b'{"event": "recovered"'):
                    try:
                        event = json.loads(line)
                        if event["rank"] == 0:
                            last = max(last, (float(event["time"]), int(path.stem.removeprefix("rank-"))))
                    except (ValueError, KeyError, TypeError):
                        continue  # who reads all of it counts what is damaged
    return last[1]


def _aside(evaluations: Sequence[tuple[float, float]], points: Sequence[tuple[float, Point]]) -> list[Point]:
    """In the order of time, and without the seconds of all evaluations until then."""
    ordered = sorted(evaluations)
    ends = [time for time, _ in ordered]
    spent = [0.0, *accumulate(seconds for _, seconds in ordered)]
    return [
        replace(point, seconds=max(point.seconds - spent[bisect_right(ends, time)], 0.0))
        for time, point in sorted(points, key=lambda pair: pair[0])
    ]


def _point(event: dict[str, Any], seconds: float, metrics: dict[str, Any]) -> Point:
    numbers = {str(name): float(value) for name, value in metrics.items() if isinstance(value, int | float)}
    return Point(float(event["epoch"]), seconds, numbers)


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
