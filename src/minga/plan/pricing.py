"""What a candidate would take: some of its steps are simulated by sizes, and the rest is multiplication.

price(candidate, profile, cluster).step_seconds
price_all(candidates, profile, cluster, processes=4)    # on several cores: none needs to know of the others
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import torch

from minga.base.process_pool import Pool
from minga.errors import MingaError
from minga.plan.candidates import Candidate
from minga.plan.cluster import PlannedCluster
from minga.runs.experiment import Cluster, Experiment, Training
from minga.simulate.profile import Profile
from minga.simulate.simulation import Mode, Simulation

__all__ = ["STEP_ERROR", "Price", "price", "price_all", "simulation_of"]

# Whole periods that are simulated: one until everything is in its stride, and some that are looked at.
_PERIODS, _FEWEST_PERIODS = 3, 2
_MANY_STEPS = 100
_FEWEST_STEPS = 6
_STEPS_TO_ADAPT = 60
# A process takes some seconds to begin, about as long as pricing so many.
_WORTH_A_PROCESS = 40


STEP_ERROR = 0.15
"""Nine of ten predicted times of steps were nearer than this to the measured ones: docs/results/predictions.md."""


@dataclass(frozen=True)
class Price:
    """What a candidate takes on a cluster."""

    candidate: Candidate
    step_seconds: float
    """Of a node's step, in the mean over nodes."""
    compute_seconds: float
    """Of that: what a node alone would need for the same samples."""
    waiting: float
    """The part of a step in which a node waits."""
    bytes_per_step: float
    """Sent by all nodes and servers, in a step of all nodes."""
    samples_per_second: float
    epoch_seconds: float
    joules_per_epoch: float
    cost_per_epoch: float

    def total(self, epochs: float, what: str) -> float:
        """Of so many epochs of one node, with those that are assumed besides: `time`, `bytes`, `energy` or `cost`."""
        return epochs * self.candidate.epochs_factor * self.of_an_epoch(what)

    def between(self, epochs: float, what: str) -> tuple[float, float]:
        """Lowest and highest of that total: nine of ten are within.

        Two things are uncertain: how long a step takes, and how many epochs a strategy needs that does not learn
        exactly what one node would, where what is assumed may be none, or twice as many. Bytes of a step are exact.
        """
        middle, factor = self.total(epochs, what), self.candidate.epochs_factor
        step = 0.0 if what == "bytes" else STEP_ERROR
        return middle * (1 - step) / factor, middle * (1 + step) * (2 * factor - 1) / factor

    @property
    def step_between(self) -> tuple[float, float]:
        """Seconds of a step."""
        return (1 - STEP_ERROR) * self.step_seconds, (1 + STEP_ERROR) * self.step_seconds

    @property
    def waiting_between(self) -> tuple[float, float]:
        """The part of a step in which a node waits: what is off in a step is off in its waiting, not in its work."""
        busy = 1 - self.waiting
        return max(0.0, 1 - busy / (1 - STEP_ERROR)), 1 - busy / (1 + STEP_ERROR)

    def of_an_epoch(self, what: str) -> float:
        return {
            "time": self.epoch_seconds,
            "bytes": self.bytes_per_step * self.epoch_seconds / self.step_seconds,
            "energy": self.joules_per_epoch,
            "cost": self.cost_per_epoch,
        }[what]


def price(
    candidate: Candidate,
    profile: Profile,
    cluster: PlannedCluster,
    *,
    total_batch: int | None = None,
    varied: bool = True,
) -> Price:
    """Simulate some steps of a candidate; `total_batch`: of all nodes together, where it does not divide evenly.

    `varied`: whether nodes' steps vary as measured. Where they don't, a few steps are enough.
    """
    steps_in_all = _steps(candidate, varied=varied)
    together = min(profile.samples, total_batch or candidate.nodes * candidate.batch)
    training = Training(steps=steps_in_all, total_batch=total_batch, evaluate_every=0)
    simulation = simulation_of(candidate, profile, cluster, training, mode="sizes", varied=varied)
    ranks = simulation.run()
    first = max(1, steps_in_all // _periods(candidate)) - 1
    workers = ranks[: candidate.nodes]
    # A few steps may be luckier than most: what chance gave them is taken back, so that all candidates have the same.
    luck = [rank.per_step(rank.luck_at, first) for rank in workers]
    steps = [rank.per_step(rank.step_ends, first) + chance for rank, chance in zip(workers, luck, strict=True)]
    rate = sum(together / candidate.nodes / seconds for seconds in steps)
    step = sum(steps) / len(steps)
    worked = [
        (rank.per_step(rank.worked_at, first) + chance) / seconds
        for rank, chance, seconds in zip(workers, luck, steps, strict=True)
    ]
    busy = min(1.0, sum(worked) / len(worked))
    if candidate.strategy.traits.adapts:
        # Where steps are short, its exchanges are so far apart that none may have ended in what is looked at.
        sent = sum(rank.bytes_at[-1] for rank in workers) / steps_in_all
    else:
        sent = sum(rank.per_step(rank.bytes_at, first) for rank in workers)
    # Servers answer what they get: in the mean over a whole run, by what they have sent in all.
    sent += sum(rank.bytes_sent for rank in ranks[candidate.nodes :]) / steps_in_all
    # The last step of an epoch has what is left, and takes as long as any other.
    epoch = math.ceil(profile.samples / together) * together / rate
    hosts = simulation.world.hosts
    # Hosts beyond the workers' have nothing but servers, which work too.
    whole = max(rank.seconds for rank in ranks)
    serving = sum(min(1.0, host.worked / whole) for host in hosts[candidate.nodes :])
    watts = len(hosts) * cluster.idle_watts + (candidate.nodes * busy + serving) * cluster.core_watts
    compute = profile.compute_of(candidate.batch).seconds + profile.update_seconds
    return Price(
        candidate=candidate,
        step_seconds=step,
        compute_seconds=compute,
        waiting=1 - busy,
        bytes_per_step=sent,
        samples_per_second=rate,
        epoch_seconds=epoch,
        joules_per_epoch=watts * epoch,
        cost_per_epoch=len(hosts) * cluster.price_per_hour * epoch / 3600,
    )


def simulation_of(
    candidate: Candidate,
    profile: Profile,
    cluster: PlannedCluster,
    training: Training,
    *,
    mode: Mode,
    data: str | None = None,
    varied: bool = True,
) -> Simulation:
    """Of training as a candidate says, on the nodes and cables of a cluster; `training` needs no batch of its own."""
    if training.total_batch is None:
        training = dataclasses.replace(training, batch=candidate.batch)
    experiment = Experiment(
        workload=profile.workload,
        data=data,
        strategy=candidate.strategy,
        cluster=Cluster(nodes=candidate.nodes),
        training=training,
    )
    wires = cluster.wires(experiment.hosts, candidate.order)
    simulation = Simulation(experiment, profile, wires, mode=mode, varied=varied)
    for host in simulation.world.hosts[: candidate.nodes]:
        place = candidate.order[host.number] if candidate.order else host.number
        host.speed *= cluster.speed_of(place)
    return simulation


def _steps(candidate: Candidate, *, varied: bool) -> int:
    traits = candidate.strategy.traits
    if traits.adapts:
        return _STEPS_TO_ADAPT
    if traits.servers and not traits.lockstep:
        return 3 * _FEWEST_STEPS
    return max(_FEWEST_STEPS if varied else _PERIODS, _periods(candidate) * candidate.strategy.traits.period)


def _periods(candidate: Candidate) -> int:
    return _PERIODS if _PERIODS * candidate.strategy.traits.period <= _MANY_STEPS else _FEWEST_PERIODS


def price_all(
    candidates: Sequence[Candidate],
    profile: Profile,
    cluster: PlannedCluster,
    *,
    total_batch: int | None = None,
    processes: int = 1,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[Price | str]:
    """The price of each or, in words, why it has none. `processes`: at most so many; what is found is the same."""
    answer = functools.partial(_price_or_problem, profile=profile, cluster=cluster, total_batch=total_batch)
    processes = min(processes, len(candidates) // _WORTH_A_PROCESS)
    found = _side_by_side(answer, candidates, processes, progress) if processes > 1 else {}
    for place, candidate in enumerate(candidates):
        if place not in found:
            progress(len(found), len(candidates))
            found[place] = answer(candidate)
    progress(len(candidates), len(candidates))
    return [found[place] for place in range(len(candidates))]


def _price_or_problem(
    candidate: Candidate, *, profile: Profile, cluster: PlannedCluster, total_batch: int | None
) -> Price | str:
    try:
        return price(candidate, profile, cluster, total_batch=total_batch)
    except MingaError as error:
        return str(error)


_Answer = Callable[[Candidate], Price | str]


def _side_by_side(
    answer: _Answer, candidates: Sequence[Candidate], processes: int, progress: Callable[[int, int], None]
) -> dict[int, Price | str]:
    """By place; those are missing that a process was killed over, perhaps for want of memory."""
    found: dict[int, Price | str] = {}
    progress(0, len(candidates))
    with Pool(processes, _begin, (answer,)) as pool, contextlib.suppress(BrokenProcessPool):
        places = {pool.submit(_answer_here, candidate): place for place, candidate in enumerate(candidates)}
        for done in as_completed(places):
            found[places[done]] = done.result()
            progress(len(found), len(candidates))
    return found


_here: list[_Answer] = []
"""In a process of its own: what it was begun with."""


def _begin(answer: _Answer) -> None:
    torch.set_num_threads(1)
    _here.append(answer)


def _answer_here(candidate: Candidate) -> Price | str:
    return _here[0](candidate)
