"""Time to a target: when a run's evaluations first were as good as that.

target = choose_target(dataset, wanted=0.9)
time_to(run, target)        # seconds of training, infinite if it was never reached
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from minga.errors import UsageError
from minga.measure.metric_names import is_share
from minga.report.dataset.groups import Dataset, RunGroup
from minga.report.dataset.reading import Run
from minga.report.dataset.statistics import Spread
from minga.report.numbers import shown_metric

__all__ = ["Target", "choose_target", "reached", "time_to"]

_ROUND = (0.999, 0.995, 0.99, 0.98, 0.97, 0.96, *(percent / 100 for percent in range(95, 0, -5)))


@dataclass(frozen=True)
class Target:
    """A value of a metric, and why that one."""

    metric: str
    value: float
    reason: str
    lower_is_better: bool = False

    @property
    def text(self) -> str:
        return f"{self.metric} {shown_metric(self.metric, self.value, short=True)}"


def time_to(run: Run, target: Target) -> float:
    """Seconds of training until the first evaluation that was good enough."""
    for point in run.curve:
        value = point.metrics.get(target.metric)
        if value is not None and (value <= target.value if target.lower_is_better else value >= target.value):
            return point.seconds
    return math.inf


def reached(group: RunGroup, target: Target) -> tuple[Spread, int]:
    """The times of a group (infinite where it was never reached), and how many runs got there."""
    times = [time_to(run, target) for run in group.runs]
    spread = Spread.of(times)
    assert spread is not None
    return spread, sum(math.isfinite(time) for time in times)


def choose_target(dataset: Dataset, wanted: float | None) -> Target | None:
    """What was asked for; else something that all groups reached; else nearly as good as one node."""
    names = dataset.metrics()
    if not names:
        return None
    metric = names[0]
    lower = dataset.lower_is_better(metric)
    if wanted is not None:
        if is_share(metric) and not 0 < wanted <= 1:
            raise UsageError(f"--target {wanted:g} is no {metric}: it is a part of 1, such as 0.95")
        return Target(metric, wanted, "as asked for", lower)
    best = [_best(group, metric, lower=lower) for group in dataset.groups]
    if any(value is None for value in best):
        return None
    known = [value for value in best if value is not None]
    if lower:
        return Target(metric, _rounded_up(max(known)), "what every group reached, rounded up", lower)
    common = next((value for value in _ROUND if value <= min(known)), None)
    # One group that learned nothing would drag the target down to where nobody cares.
    if is_share(metric) and common is not None and common >= 0.9 * max(known):
        return Target(metric, common, f"the highest round {metric} that every group reached")
    alone = [value for group, value in zip(dataset.groups, best, strict=True) if group.nodes == 1 and value is not None]
    reference = max(alone or known)
    whose = "the best median on one node" if alone else "the best median"
    nearly = reference - 0.01 * abs(reference)  # some metrics, such as R2, may be below zero
    return Target(metric, math.floor(nearly * 1e4) / 1e4, f"99 % of {whose}")


def _best(group: RunGroup, metric: str, *, lower: bool) -> float | None:
    """What more than half of the runs reached at some time, so that the median time to it is finite."""
    choose = min if lower else max
    values = [[point.metrics[metric] for point in run.curve if metric in point.metrics] for run in group.runs]
    best = sorted((choose(each) for each in values if each), reverse=choose is max)
    return best[group.n // 2] if len(best) > group.n // 2 else None


def _rounded_up(value: float) -> float:
    if value <= 0 or not math.isfinite(value):
        return value
    unit: float = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / unit - 1e-9) * unit
