"""What a candidate would take: some of its steps are simulated by sizes, and the rest is multiplication."""

from __future__ import annotations

import math
from dataclasses import dataclass

from minga.plan.candidates import Candidate
from minga.plan.cluster import PlannedCluster
from minga.runs.experiment import Cluster, Experiment, Training
from minga.simulate.profile import Profile
from minga.simulate.simulation import Mode, Simulation

__all__ = ["Price", "price", "simulation_of"]

# Whole periods that are simulated: one until everything is in its stride, and some that are looked at.
_PERIODS, _FEWEST_PERIODS = 3, 2
_MANY_STEPS = 100
_FEWEST_STEPS = 6
_STEPS_TO_ADAPT = 60


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
    experiment = Experiment(
        workload=profile.workload,
        strategy=candidate.strategy,
        cluster=Cluster(nodes=candidate.nodes),
        training=Training(
            steps=steps_in_all,
            batch=candidate.batch if total_batch is None else None,
            total_batch=total_batch,
            evaluate_every=0,
        ),
    )
    simulation = simulation_of(candidate, experiment, profile, cluster, mode="sizes", varied=varied)
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
    if experiment.ranks > candidate.nodes:
        # Servers answer what they get: in the mean over a whole run, by what they have sent in all.
        sent += sum(rank.bytes_sent for rank in ranks[candidate.nodes :]) / steps_in_all
    # The last step of an epoch has what is left, and takes as long as any other.
    epoch = math.ceil(profile.samples / together) * together / rate
    hosts = experiment.hosts
    # Hosts beyond the workers' have nothing but servers, which work too.
    whole = max(rank.seconds for rank in ranks)
    serving = sum(min(1.0, host.worked / whole) for host in simulation.world.hosts[candidate.nodes :])
    watts = hosts * cluster.idle_watts + (candidate.nodes * busy + serving) * cluster.core_watts
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
        cost_per_epoch=hosts * cluster.price_per_hour * epoch / 3600,
    )


def simulation_of(
    candidate: Candidate,
    experiment: Experiment,
    profile: Profile,
    cluster: PlannedCluster,
    *,
    mode: Mode,
    varied: bool = True,
) -> Simulation:
    """An experiment with a candidate, on the nodes and cables of a cluster."""
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
    return max(_FEWEST_STEPS if varied else _PERIODS, _periods(candidate) * candidate.period)


def _periods(candidate: Candidate) -> int:
    return _PERIODS if _PERIODS * candidate.period <= _MANY_STEPS else _FEWEST_PERIODS
