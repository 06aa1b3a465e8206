"""`plan(profile, cluster)`: candidates in the order of what they take, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from minga.errors import ConfigError
from minga.plan.candidates import Candidate, candidates_for
from minga.plan.cluster import PlannedCluster
from minga.plan.pricing import Price
from minga.plan.pricing_all import price_all
from minga.plan.ring_order import most_central_first, nearest_neighbours
from minga.plan.uncertainty import between
from minga.plan.why import why
from minga.simulate.profile import Profile

__all__ = ["Goal", "Plan", "Planned", "plan"]

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
    left_out: dict[str, str]
    """Candidates that could not be priced, and why."""

    @property
    def best(self) -> Planned:
        return self.ranked[0]

    @property
    def too_near(self) -> int:
        """So many others may be as good as the best, by how far predictions are from measurements."""
        limit = between(self.best.price, self.epochs, self.goal)[1]
        return sum(each.amount <= limit for each in self.ranked[1:])


def plan(
    profile: Profile,
    cluster: PlannedCluster,
    *,
    goal: Goal = "time",
    epochs: float | None = None,
    within: float | None = None,
    total_batch: int | None = None,
    batches: Sequence[int] = (),
    candidates: Iterable[Candidate] | None = None,
    ranks_may_move: bool = True,
    processes: int = 1,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Plan:
    """Price all candidates; `within`: only those that take no more seconds, if any does.

    `batches`: samples of a node in a step, to choose among; empty: the workload's own.
    `ranks_may_move`: whether it can still be chosen which node is which rank.
    `processes`: that price candidates, at most; the plan is the same.
    """
    epochs = epochs or profile.epochs
    cluster.wires(cluster.nodes)  # what can't be simulated is an error at once
    chosen = list(candidates or _candidates(cluster.nodes, batches or [profile.batch], total_batch))
    if ranks_may_move:
        chosen = [_placed(candidate, cluster) for candidate in chosen]
    found = price_all(chosen, profile, cluster, total_batch=total_batch, processes=processes, progress=progress)
    prices = [each for each in found if isinstance(each, Price)]
    left_out = {
        f"{candidate.name}, {candidate.nodes} nodes, batch {candidate.batch}": each
        for candidate, each in zip(chosen, found, strict=True)
        if isinstance(each, str)
    }
    if not prices:
        raise ConfigError(f"none of {len(chosen)} candidates can be priced; the first: {next(iter(left_out.values()))}")
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
    return Plan(tuple(ranked), goal, epochs, left_out)


def _candidates(nodes: int, batches: Sequence[int], total_batch: int | None) -> Iterator[Candidate]:
    for batch in batches:
        yield from candidates_for(nodes, batch, total_batch=total_batch)


def _placed(candidate: Candidate, cluster: PlannedCluster) -> Candidate:
    """On the best of the nodes; where delays were measured, with short ways around the ring or to the servers.

    Servers that have machines of their own get those with the widest cables.
    """
    strategy = candidate.strategy
    apart = (
        0 if strategy.traits.servers_beside_workers else min(strategy.traits.servers, cluster.nodes - candidate.nodes)
    )
    nodes = cluster.best_nodes(candidate.nodes + apart)
    if apart:
        serving = sorted(nodes, key=lambda node: (-cluster.width_of(node), cluster.speed_of(node), node))[:apart]
        nodes = (*(node for node in nodes if node not in serving), *serving)
    elif cluster.delays:
        delays = tuple(tuple(cluster.delays[a][b] for b in nodes) for a in nodes)
        shortest = most_central_first if candidate.strategy.traits.servers_beside_workers else nearest_neighbours
        nodes = tuple(nodes[place] for place in shortest(delays))
    return candidate if nodes == tuple(range(len(nodes))) else dataclasses.replace(candidate, order=nodes)
