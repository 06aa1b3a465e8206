"""`plan(profile, cluster)`: candidates in the order of what they take, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from minga.errors import MingaError
from minga.plan.candidates import Candidate, candidates_for
from minga.plan.cluster import PlannedCluster
from minga.plan.pilot import Reached, fly
from minga.plan.pricing import Price, price
from minga.plan.ring_order import most_central_first, nearest_neighbours
from minga.plan.why import why
from minga.simulate.profile import Profile

__all__ = ["Goal", "Plan", "Planned", "pilot_runs", "plan"]

Goal = Literal["time", "bytes", "energy", "cost"]


@dataclass(frozen=True)
class Planned:
    """One candidate in a plan."""

    price: Price
    epochs: float
    amount: float
    """Of what is minimised, over all epochs."""
    seconds: float
    why: str

    @property
    def candidate(self) -> Candidate:
        return self.price.candidate


@dataclass(frozen=True)
class Plan:
    """Candidates, the best first."""

    ranked: tuple[Planned, ...]
    goal: Goal
    epochs: float
    left_out: int
    """Candidates that can't be run like that."""

    @property
    def best(self) -> Planned:
        return self.ranked[0]


def plan(
    profile: Profile,
    cluster: PlannedCluster,
    *,
    goal: Goal = "time",
    epochs: float | None = None,
    within: float | None = None,
    total_batch: int | None = None,
    candidates: Iterable[Candidate] | None = None,
    ranks_may_move: bool = True,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Plan:
    """Price all candidates; `within`: only those that take no more seconds, if any does.

    `ranks_may_move`: whether it can still be chosen which node is which rank.
    """
    epochs = epochs or profile.epochs
    chosen = list(candidates or candidates_for(cluster.nodes, profile.batch, total_batch=total_batch))
    if cluster.delays and ranks_may_move:
        ring, centre = nearest_neighbours(cluster.delays), most_central_first(cluster.delays)
        chosen = [_placed(each, centre if each.strategy.servers_beside_workers else ring) for each in chosen]
    prices: list[Price] = []
    for number, candidate in enumerate(chosen):
        progress(number, len(chosen))
        try:
            prices.append(price(candidate, profile, cluster))
        except MingaError:
            continue
    progress(len(chosen), len(chosen))
    alone = next((each for each in prices if each.candidate.nodes == 1), None)
    planned = [
        Planned(
            price=each,
            epochs=epochs * each.candidate.epochs_factor,
            amount=each.total(epochs, goal),
            seconds=each.total(epochs, "time"),
            why=why(each, alone, cluster),
        )
        for each in prices
    ]
    fitting = [each for each in planned if within is None or each.seconds <= within] or planned
    ranked = sorted(fitting, key=lambda each: (each.amount, each.seconds, each.candidate.nodes))
    return Plan(tuple(ranked), goal, epochs, len(chosen) - len(prices))


def _placed(candidate: Candidate, order: tuple[int, ...]) -> Candidate:
    if candidate.nodes != len(order):
        return candidate
    return Candidate(candidate.strategy, candidate.nodes, candidate.batch, order)


def pilot_runs(
    found: Plan,
    profile: Profile,
    cluster: PlannedCluster,
    *,
    target: float,
    pilots: int,
    total_batch: int | None = None,
    data: str | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[tuple[Planned, Reached]]:
    """Train the best of a plan, and one node, in virtual time: who reaches this accuracy first, and when."""
    chosen = list(found.ranked[:pilots])
    chosen += [each for each in found.ranked[pilots:] if each.candidate.nodes == 1]
    flown = []
    for number, each in enumerate(chosen):
        progress(number, len(chosen))
        reached = fly(
            each.candidate, profile, cluster, target=target, epochs=found.epochs, total_batch=total_batch, data=data
        )
        flown.append((each, reached))
    progress(len(chosen), len(chosen))
    return sorted(flown, key=lambda pair: (pair[1].seconds is None, pair[1].seconds or 0.0, -pair[1].best))
