"""When would a candidate reach an accuracy? Its whole training is run in virtual time, with its mathematics.

    reached = fly(candidate, profile, cluster, target=0.9, epochs=5)
    reached.seconds, reached.epochs                       # of training; None where it was not reached

What is learnt is what the same strategy learns with the same seed; only the time is predicted. It takes as long as
training on one core does, whatever the number of nodes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from minga.experiment import Cluster, Experiment, Training
from minga.measure.events import event_files, read_events
from minga.plan.candidates import Candidate
from minga.plan.cluster import PlannedCluster
from minga.plan.pricing import simulation_of
from minga.simulate.profile import Profile

__all__ = ["Reached", "first_reach", "fly"]


@dataclass(frozen=True)
class Reached:
    """How far a training came, and when it reached what was asked for, at the end of an epoch."""

    seconds: float | None
    epochs: float | None
    best: float
    """The highest accuracy on the way."""


def fly(
    candidate: Candidate,
    profile: Profile,
    cluster: PlannedCluster,
    *,
    target: float,
    epochs: float,
    total_batch: int | None = None,
    data: str | None = None,
    seed: int = 0,
    when_stepped: Callable[[], None] = lambda: None,
) -> Reached:
    """Train in virtual time for so many epochs."""
    experiment = Experiment(
        workload=profile.workload,
        data=data,
        strategy=candidate.strategy,
        cluster=Cluster(nodes=candidate.nodes),
        training=Training(
            epochs=max(1, round(epochs)),
            seed=seed,
            batch=candidate.batch if total_batch is None else None,
            total_batch=total_batch,
        ),
    )
    with tempfile.TemporaryDirectory(prefix="minga-plan-") as folder:
        (Path(folder) / "events").mkdir()
        simulation = simulation_of(candidate, experiment, profile, cluster, mode="mathematics")
        simulation.run(Path(folder), when_stepped=when_stepped)
        return first_reach(Path(folder), target)


def first_reach(run: Path, target: float) -> Reached:
    """Of a run, real or simulated: when an evaluation showed this accuracy first. Evaluating itself does not count."""
    began = evaluating = best = 0.0
    reached: tuple[float, float] | None = None
    for event in read_events(event_files(run)[0]):
        if event["event"] == "started":
            began = event["time"]
        elif event["event"] == "evaluated":
            evaluating += event["seconds"]
            accuracy = event["metrics"].get("accuracy", 0.0)
            best = max(best, accuracy)
            if accuracy >= target and reached is None:
                reached = event["time"] - began - evaluating, event["epoch"]
    return Reached(reached[0] if reached else None, reached[1] if reached else None, best)
