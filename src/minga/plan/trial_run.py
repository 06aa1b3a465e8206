"""When would a candidate be as good as that? Its whole training is run in virtual time, with its mathematics.

    reached = trial_run(candidate, profile, cluster, target=0.9, epochs=5)
    reached.seconds, reached.epochs                       # of training; None where it was not reached

What is learnt is what the same strategy learns with the same seed; only the time is predicted. It takes as long as
training on one core does, whatever the number of nodes.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from minga.errors import MingaError
from minga.measure.event_reader import event_files, read_events
from minga.measure.events import Evaluated, Started
from minga.measure.metric_names import main_metric
from minga.plan.candidates import Candidate
from minga.plan.cluster import PlannedCluster
from minga.plan.planner import Plan, Planned
from minga.plan.pricing import simulation_of
from minga.runs.experiment import Training
from minga.simulate.profile import Profile

__all__ = ["REACHED_ERROR", "Reached", "first_reach", "trial_run", "trial_runs"]


REACHED_ERROR = 0.20
"""Nine of ten times to an accuracy were nearer than this to the measured ones: docs/results/predicted_accuracy.md."""


@dataclass(frozen=True)
class Reached:
    """How far a training came, and when it reached what was asked for, at the end of an epoch."""

    seconds: float | None
    epochs: float | None
    best: float
    """The best value of the workload's main metric on the way."""
    problem: str = ""
    """Why it came to nothing."""
    amount: float | None = None
    """Of what the plan minimises, until then."""
    metric: str = "accuracy"
    """What `best` is a value of."""
    lower_is_better: bool = False

    @property
    def seconds_between(self) -> tuple[float, float] | None:
        """Lowest and highest: nine of ten are within."""
        if self.seconds is None:
            return None
        return (1 - REACHED_ERROR) * self.seconds, (1 + REACHED_ERROR) * self.seconds


def trial_runs(
    found: Plan,
    profile: Profile,
    cluster: PlannedCluster,
    *,
    target: float,
    pilots: int,
    within: float | None = None,
    total_batch: int | None = None,
    data: str | None = None,
    progress: Callable[[float, int], None] = lambda done, of: None,
) -> list[tuple[Planned, Reached]]:
    """Train the best of a plan, and one node, in virtual time: who is as good as that with the least, and when.

    `within`: those who do in so many seconds come first.
    """
    chosen = list(found.ranked[:pilots])
    if not any(each.candidate.nodes == 1 for each in chosen):
        chosen += [each for each in found.ranked[pilots:] if each.candidate.nodes == 1][:1]
    trials = []
    for number, each in enumerate(chosen):
        try:
            reached = trial_run(
                each.candidate,
                profile,
                cluster,
                target=target,
                epochs=found.epochs,
                total_batch=total_batch,
                data=data,
                progress=lambda part, number=number: progress(number + part, len(chosen)),  # type: ignore[misc]
            )
        except MingaError as error:  # such as one that diverges: the others may not
            reached = Reached(None, None, 0.0, problem=str(error))
        if reached.seconds is not None and reached.epochs is not None:
            amount = reached.epochs * each.price.of_an_epoch(found.goal)
            reached = dataclasses.replace(reached, amount=reached.seconds if found.goal == "time" else amount)
        trials.append((each, reached))

    def worth(pair: tuple[Planned, Reached]) -> tuple[bool, bool, float, float, float]:
        reached = pair[1]
        seconds, late = reached.seconds or 0.0, within is not None and (reached.seconds or 0.0) > within
        best_first = reached.best if reached.lower_is_better else -reached.best
        return reached.seconds is None, late, reached.amount or 0.0, seconds, best_first

    return sorted(trials, key=worth)


def trial_run(
    candidate: Candidate,
    profile: Profile,
    cluster: PlannedCluster,
    *,
    target: float,
    epochs: float,
    total_batch: int | None = None,
    data: str | None = None,
    progress: Callable[[float], None] = lambda part: None,
) -> Reached:
    """Train in virtual time for so many epochs; `progress` is called with the part that is done."""
    training = Training(epochs=max(1, round(epochs)), total_batch=total_batch)
    with tempfile.TemporaryDirectory(prefix="minga-plan-") as folder:
        (Path(folder) / "events").mkdir()
        simulation = simulation_of(candidate, profile, cluster, training, mode="mathematics", data=data)
        simulation.run(
            Path(folder), when_stepped=lambda: progress(min(t.progress for t in simulation.train_states.values()))
        )
        progress(1.0)
        return first_reach(Path(folder), target)


def first_reach(run: Path, target: float) -> Reached:
    """Of a run, real or simulated: when an evaluation was as good as that first. Evaluating itself does not count."""
    began = evaluating = 0.0
    best: float | None = None
    metric, lower = "loss", True
    reached: tuple[float, float] | None = None
    for event in read_events(event_files(run)[0]):
        if isinstance(event, Started):
            began = event.time
        elif isinstance(event, Evaluated) and (name := main_metric(event.metrics)) is not None:
            evaluating += event.seconds
            metric, value, lower = name, event.metrics[name], name in event.lower_is_better
            sign = -1 if lower else 1
            best = value if best is None or sign * value > sign * best else best
            if sign * value >= sign * target and reached is None:
                reached = event.time - began - evaluating, event.epoch
    seconds, epochs = reached or (None, None)
    return Reached(seconds, epochs, 0.0 if best is None else best, metric=metric, lower_is_better=lower)
