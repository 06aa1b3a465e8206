"""Groups of runs that repeat one experiment, and the dataset that they make up.

dataset = make_dataset(find_runs(paths))
for group in dataset.groups:
    print(group.label, group.seconds.median, dataset.speedup(group))
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from minga.base.units import parse_bandwidth
from minga.measure.metric_names import lower_by_name, main_metric
from minga.report.dataset.reading import Run
from minga.report.dataset.settings import bandwidth_text, differing, labels, telling
from minga.report.dataset.sources import Found
from minga.report.dataset.statistics import Spread

__all__ = ["Dataset", "GroupEnergy", "NodesLine", "Phases", "RunGroup", "lines_over_nodes", "make_dataset", "phases_of"]

_SAME_WORK = ("workload", "training.epochs", "training.steps", "cluster.device")
"""What a run on one node has to share with others to be their baseline."""
_ANOTHER_MATTER_ON_ONE_NODE = (
    "strategy",
    "cluster.nodes",
    "cluster.speeds",
    "cluster.cpu",
    "training.learning_rate_rule",
)
_BATCH = ("training.batch", "training.total_batch")


@dataclass(frozen=True)
class GroupEnergy:
    """Of a group's runs."""

    joules: Spread
    joule_seconds: Spread
    """Energy x delay."""
    estimated: bool
    source: str


@dataclass(frozen=True)
class Phases:
    """Where one rank's time goes, in seconds."""

    name: str
    role: str
    seconds: dict[str, float]
    """By phase; `wait` and `other` are among them."""

    @property
    def trains(self) -> bool:
        return self.role != "server"

    @property
    def total(self) -> float:
        return sum(self.seconds.values())

    @property
    def waiting_share(self) -> float | None:
        return self.seconds["wait"] / self.total if self.total else None

    @property
    def own(self) -> float:
        """Without waiting."""
        return self.total - self.seconds["wait"]


@dataclass(eq=False)
class RunGroup:
    """Runs that repeat one experiment with other seeds."""

    runs: list[Run]
    label: str = ""
    line: str = ""
    """Its label without the number of nodes: groups with the same one make a line in a figure."""
    conditions: str = ""
    """Its label without the number of nodes and the strategy."""
    rest: str = ""
    """Its label without the number of nodes, the strategy and the bandwidth."""

    @property
    def settings(self) -> dict[str, Any]:
        return self.runs[0].settings

    @property
    def simulated(self) -> bool:
        return self.runs[0].simulated

    @property
    def environment(self) -> str | None:
        """The name of a study's environment."""
        return self.runs[0].environment

    @property
    def n(self) -> int:
        return len(self.runs)

    @property
    def nodes(self) -> int:
        return self.runs[0].finished.nodes

    @property
    def strategy(self) -> str:
        return str(self.settings["strategy"])

    @property
    def bandwidth(self) -> float | None:
        """Bits per second that were asked for; None where nothing is shaped."""
        value = self.settings.get("cluster.network.bandwidth")
        try:
            return None if value is None else float(parse_bandwidth(value))
        except (TypeError, ValueError):
            return None

    @property
    def bandwidth_text(self) -> str:
        return bandwidth_text(self.settings)

    def spread(self, value: Callable[[Run], float | None]) -> Spread | None:
        return Spread.of(value(run) for run in self.runs)

    def number(self, value: Callable[[Run], float]) -> Spread:
        spread = self.spread(value)
        assert spread is not None, "every finished run has this"
        return spread

    @cached_property
    def seconds(self) -> Spread:
        return self.number(lambda run: run.finished.seconds)

    @cached_property
    def samples(self) -> Spread:
        return self.number(lambda run: run.finished.samples)

    @cached_property
    def seconds_per_epoch(self) -> Spread:
        return self.number(lambda run: run.finished.seconds / run.finished.epochs)

    @cached_property
    def samples_per_second(self) -> Spread:
        return self.number(lambda run: run.finished.samples_per_second)

    @cached_property
    def bytes_sent(self) -> Spread:
        return self.number(lambda run: run.finished.bytes_sent)

    @cached_property
    def messages_sent(self) -> Spread:
        return self.number(lambda run: run.finished.messages_sent)

    @cached_property
    def middle(self) -> Run:
        """The repetition with the median time (of an even number: the quicker of two), as an example."""
        return sorted(self.runs, key=lambda run: run.finished.seconds)[(self.n - 1) // 2]

    def metric(self, name: str) -> Spread | None:
        """At the end."""
        return self.spread(lambda run: run.finished.metrics.get(name))

    @cached_property
    def energy(self) -> GroupEnergy | None:
        known = [energy for run in self.runs if (energy := run.finished.energy) is not None and energy.joules]
        joules = Spread.of(energy.joules for energy in known)
        product = Spread.of(run.finished.energy_delay_product or None for run in self.runs)
        if joules is None or product is None:
            return None
        sources = sorted({energy.source for energy in known})
        return GroupEnergy(joules, product, any(energy.estimated for energy in known), ", ".join(sources))

    def share(self, *phases: str) -> float:
        """The part of the workers' time that goes into these phases, in the median of the repetitions."""
        spent = sum(rank.seconds.get(name, 0.0) for rank in self.workers for name in phases)
        return spent / sum(rank.total for rank in self.workers)

    @property
    def workers(self) -> list[Phases]:
        return [rank for rank in self.phases if rank.trains]

    @cached_property
    def phases(self) -> list[Phases]:
        """Of each rank, the median over the repetitions."""
        merged = []
        for of_rank in zip(*map(phases_of, self.runs), strict=False):
            # In an order of their own, not that of a set: sums should have the same last digits every time.
            names = dict.fromkeys(name for each in of_rank for name in each.seconds)
            seconds = {name: statistics.median(each.seconds.get(name, 0.0) for each in of_rank) for name in names}
            merged.append(Phases(of_rank[0].name, of_rank[0].role, seconds))
        return merged


def phases_of(run: Run) -> list[Phases]:
    """Of each rank of one run."""
    found = []
    for rank in run.finished.ranks:
        own = {name: seconds for name, seconds in rank.phases.items() if name != "wait"}
        rest = max(rank.work_seconds - sum(own.values()), 0.0)
        # A server takes no steps, so nothing is known of its own work but how long it was.
        own["serve" if rank.role == "server" else "other"] = rest
        found.append(Phases(run.name_of(rank.rank), rank.role, {**own, "wait": rank.wait_seconds}))
    return found


@dataclass(eq=False)
class Dataset:
    """All groups, and what was found besides them."""

    groups: list[RunGroup]
    found: Found

    @cached_property
    def differing(self) -> list[str]:
        """Paths of the settings that are not the same in all groups."""
        return differing([group.settings for group in self.groups])

    @cached_property
    def telling(self) -> list[str]:
        """Of these the ones that say more than the number of nodes."""
        return telling([group.settings for group in self.groups])

    @property
    def repeated(self) -> bool:
        """Whether any group has more than one run, so that there is a spread to speak of."""
        return any(group.n > 1 for group in self.groups)

    @property
    def node_counts(self) -> list[int]:
        return sorted({group.nodes for group in self.groups})

    @cached_property
    def same_work(self) -> bool:
        """Whether all groups train on about as many samples, so that their times can be compared."""
        samples = [group.samples.median for group in self.groups]
        return max(samples) <= 1.01 * min(samples)

    def time(self, group: RunGroup) -> Spread:
        """What can be compared: all of training, or an epoch where groups have different amounts of work."""
        return group.seconds if self.same_work else group.seconds_per_epoch

    @property
    def time_name(self) -> str:
        return "training time" if self.same_work else "time of an epoch"

    def baseline(self, group: RunGroup) -> RunGroup | None:
        """The group on one node that does the same work, as equal as there is; None for that one itself.

        One node that goes the distributed way, with nobody to talk to, is compared with one that does not.
        """
        if group.nodes == 1 and group.strategy == "single":
            return None

        def distance(other: RunGroup) -> tuple[bool, int]:
            paths = differing([group.settings, other.settings])
            # One node's batch is everybody's, so it equals one that is given for all nodes together.
            same_batch = other.settings.get("training.batch") in [group.settings.get(path) for path in _BATCH]
            ignored = (*_ANOTHER_MATTER_ON_ONE_NODE, *(_BATCH if same_batch else ()))
            unequal = [path for path in paths if path not in ignored and not path.startswith("cluster.network.")]
            network = group.settings.get("cluster.network.bandwidth") != other.settings.get("cluster.network.bandwidth")
            return (group.simulated != other.simulated, 2 * len(unequal) + network)

        candidates = [
            other
            for other in self.groups
            if other.nodes == 1
            and (group.nodes > 1 or other.strategy == "single")
            and all(other.settings.get(path) == group.settings.get(path) for path in _SAME_WORK)
        ]
        return min(candidates, key=distance, default=None)

    def speedup(self, group: RunGroup) -> Spread | None:
        """Samples per second relative to one node's median: T1/Tn where the work is the same."""
        baseline = self.baseline(group)
        return group.samples_per_second.divided_by(baseline.samples_per_second.median) if baseline else None

    def relative_energy(self, group: RunGroup) -> tuple[float, float] | None:
        """Energy and energy-delay product relative to one node's, which is 1 itself."""
        baseline = self.baseline(group) or (group if group.nodes == 1 else None)
        if baseline is None or baseline.energy is None or group.energy is None:
            return None
        return (
            group.energy.joules.median / baseline.energy.joules.median,
            group.energy.joule_seconds.median / baseline.energy.joule_seconds.median,
        )

    def metrics(self) -> list[str]:
        """Names of what was evaluated: what stands for all first, then the loss, then others as runs have them."""
        points = [point for group in self.groups for run in group.runs for point in run.curve]
        names = list(dict.fromkeys(name for point in points for name in point.metrics))
        first = main_metric(names, next((run.main_metric for group in self.groups for run in group.runs), None))
        return sorted(names, key=lambda name: (name != first, name != "loss"))

    def lower_is_better(self, metric: str) -> bool:
        """As the runs say; of runs that don't, by the metric's name."""
        declared = [run.lower_is_better for run in self.found.runs if run.lower_is_better]
        return any(metric in names for names in declared) if declared else lower_by_name(metric)


def make_dataset(found: Found) -> Dataset:
    """Runs of one cell, or with equal settings, are a group."""
    members: dict[str, list[Run]] = {}
    for run in found.runs:
        key = run.cell or json.dumps(run.settings, sort_keys=True, default=str)
        members.setdefault(f"{key}{run.simulated}", []).append(run)
    groups = sorted(map(RunGroup, members.values()), key=_order)
    _name(groups)
    return Dataset(groups, found)


def _name(groups: Sequence[RunGroup]) -> None:
    # An environment has a name from the study, which stands for all that it sets.
    shown = [group.settings for group in groups if group.environment is None]
    left_out = ("cluster.nodes", "strategy", "cluster.network.bandwidth")
    names = [labels(shown), *(labels(shown, leaving_out=left_out[:count]) for count in (1, 2, 3))]
    seen = Counter[str]()
    made = zip(*names, strict=True)
    for group in groups:
        given = (group.environment,) * 4 if group.environment is not None else next(made)
        mark = "simulated" if group.simulated else ""
        group.label, group.line, group.conditions, group.rest = (
            ", ".join(part for part in (name, mark) if part) for name in given
        )
        seen[group.label] += 1
        if seen[group.label] > 1:
            group.label += f" ({seen[group.label]})"


def _order(group: RunGroup) -> tuple[Any, ...]:
    bandwidth = group.bandwidth if group.bandwidth is not None else float("inf")
    settings = group.settings
    rest = json.dumps({path: settings[path] for path in settings if path != "strategy"}, sort_keys=True, default=str)
    single = group.strategy != "single"
    return (str(settings["workload"]), single, group.strategy, bandwidth, group.nodes, group.simulated, rest)


@dataclass(frozen=True)
class NodesLine:
    """Groups that differ only in the number of nodes; the one on one node may be shared between lines.

    Its label is made of all other settings, such as "ring, 10 Mbit/s".
    """

    label: str
    groups: dict[int, RunGroup]

    @property
    def largest(self) -> RunGroup:
        return self.groups[max(self.groups)]


def lines_over_nodes(dataset: Dataset) -> list[NodesLine]:
    """Only those with more than one node; in the order of the groups."""
    members: dict[str, dict[int, RunGroup]] = {}
    for group in dataset.groups:
        if group.nodes > 1:
            members.setdefault(group.line, {}).setdefault(group.nodes, group)
    lines = []
    for label, groups in members.items():
        baseline = dataset.baseline(next(iter(groups.values())))
        lines.append(NodesLine(label, {1: baseline, **groups} if baseline else groups))
    return lines
