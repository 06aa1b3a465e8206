"""One run's directory as data: its summary, its curves, its samples. Nothing that a run brings along is executed.

run = read_run(Path("runs/20260101-120000-digits-ring-4"))
run.curve[-1].metrics["accuracy"], run.curve[-1].seconds
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from minga.errors import UsageError
from minga.measure.event_reader import SIMULATED, EventReader, event_files, rank_of
from minga.measure.events import Evaluated, Failed, Resumed, Sampled, Stepped
from minga.report.dataset.settings import comparable, read_settings
from minga.report.follow import Follower
from minga.report.summary import Summary, read_network, summary_of

__all__ = ["Point", "Run", "is_run", "read_run"]


@dataclass(frozen=True)
class Point:
    """The model's quality at some moment."""

    epoch: float
    seconds: float
    """Of training until then: evaluations do not count."""
    metrics: dict[str, float]


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
    malformed: dict[str, int] = field(default_factory=dict)
    """Lines of its files that were no events and were passed over, by file."""
    curve: list[Point] = field(default_factory=list)
    training_losses: list[Point] = field(default_factory=list)
    samples: dict[int, list[Sampled]] = field(default_factory=dict)
    """What each rank used; `time` is in seconds since the run began to train, evaluations included."""
    power: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    """Seconds since the beginning, watts by device: counters of the whole machine."""
    network: dict[str, Any] = field(default_factory=dict)
    """What was asked of the lab's network and what was measured there."""
    simulated: bool = False
    main_metric: str | None = None
    """The metric that stands for all, if its events say it."""
    lower_is_better: set[str] = field(default_factory=set)
    """Of which metrics, as its events say; empty if they don't."""
    cell: str | None = None
    """Of a study, what it is a run of."""
    environment: str | None = None
    """The name of a study's environment."""

    @property
    def finished(self) -> Summary:
        assert self.summary is not None, "only finished runs are in groups"
        return self.summary

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
    """Read a run; what is wrong with it is in `problem` and `malformed`."""
    follower = Follower(directory)
    follower.read()
    machine = follower.read_machine_power()
    facts, settings = follower.facts, read_settings(directory, follower.facts)
    run = Run(
        directory=directory,
        settings=comparable(settings),
        seed=settings["training.seed"],
        lockstep=bool(facts.lockstep),
        malformed=follower.malformed,
        simulated=(directory / SIMULATED).exists(),
        main_metric=facts.main_metric,
        lower_is_better=set(facts.lower_is_better),
    )
    run.problem, run.lost = _outcome(directory, follower, elastic=_is_elastic(settings, follower))
    if run.lost:  # who was lost has done fewer steps, so times don't show who held up whom
        run.lockstep = False
    if follower.started is not None:
        began = follower.started.time
        _read_curves(run, follower, began)
        run.power = [(event.time - began, event.watts) for event in machine]
    try:
        run.network = read_network(directory)
    except UsageError:
        run.problem = run.problem or "its network.json is damaged"
    if run.problem is None:
        run.summary = summary_of(directory, follower, settings, machine, run.network)
        if run.summary is None or not run.summary.samples or run.summary.seconds <= 0:
            run.problem = "it never trained a step"
    return run


def _is_elastic(settings: Mapping[str, Any], follower: Follower) -> bool:
    """Whether ranks could go and come, also of a run whose events don't say it."""
    if follower.facts.elastic is not None:
        return follower.facts.elastic
    fixed = settings["strategy"].startswith("native") or settings.get("cluster.device") == "cuda"
    return settings.get("cluster.transport", "gloo" if fixed else "tcp") == "tcp" and follower.expected > 1


def _outcome(directory: Path, follower: Follower, *, elastic: bool) -> tuple[str | None, list[int]]:
    """Why a run can't be counted, if it can't; and the ranks that were lost in one that can."""
    first: Failed | None = None
    for failure in follower.failures:  # the one that the others follow from, if it is among them
        first = failure if first is None or not failure.consequence else first
    problem = f"rank {first.rank} failed at step {first.step}: {first.message}" if first is not None else None
    finished = {rank for rank, state in follower.ranks.items() if state.finished is not None}
    if follower.started is None:
        return problem or "it has no events: it never began to train", []
    # Where ranks may be lost, all is done when the model is there, whoever else has said that it is done.
    done = len(finished) >= follower.expected or (elastic and (directory / "model.safetensors").is_file())
    if done and (elastic or problem is None):  # where others have gone on, one that failed is one that was lost
        return None, sorted(set(map(rank_of, event_files(directory))) - finished)
    missing = f"it is not finished: {len(finished)} of {follower.expected} ranks say that they are done"
    return problem or missing, []


def _read_curves(run: Run, follower: Follower, began: float) -> None:
    """Quality, losses and use of the machine over time, where evaluations and interruptions do not count."""
    # What becomes points, with its time and that of training, until all evaluations are known; the first rank of the
    # moment makes them.
    curve: list[_Observed] = []
    losses: list[_Observed] = []
    evaluations: list[tuple[float, float]] = []
    for path in event_files(run.directory):
        rank = rank_of(path)
        idle = last = 0.0
        for event in EventReader(path, without_steps=rank != follower.leader).read():
            if isinstance(event, Resumed):  # nobody trained since the event before it
                idle += event.time - last
            last = event.time
            seconds = event.time - began - idle
            if isinstance(event, Stepped):
                if rank == follower.leader and event.loss is not None:
                    losses.append((event.time, seconds, event.epoch, {"training loss": event.loss}))
            elif isinstance(event, Evaluated):
                evaluations.append((event.time, event.seconds))
                curve.append((event.time, seconds, event.epoch, event.metrics))
                run.lower_is_better.update(event.lower_is_better)
            elif isinstance(event, Sampled) and event.seconds > 0:
                run.samples.setdefault(rank, []).append(dataclasses.replace(event, time=seconds))
    run.curve, run.training_losses = _aside(evaluations, curve), _aside(evaluations, losses)


_Observed = tuple[float, float, float, dict[str, float]]


def _aside(evaluations: Sequence[tuple[float, float]], observed: Sequence[_Observed]) -> list[Point]:
    """In the order of time, and without the seconds of all evaluations until then."""
    ordered = sorted(evaluations)
    ends = [time for time, _ in ordered]
    spent = [0.0, *accumulate(seconds for _, seconds in ordered)]
    return [
        Point(epoch, max(seconds - spent[bisect_right(ends, time)], 0.0), metrics)
        for time, seconds, epoch, metrics in sorted(observed, key=lambda each: each[0])
    ]
