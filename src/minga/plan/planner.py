"""`plan(profile, cluster)`: candidates in the order of what they take, and why."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from minga.base.units import format_bandwidth
from minga.errors import ConfigError
from minga.plan.candidates import Candidate, candidates_for
from minga.plan.cluster import PlannedCluster
from minga.plan.pricing import Price, price_all
from minga.plan.ring_order import most_central_first, nearest_neighbours
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
        limit = self.best.price.between(self.epochs, self.goal)[1]
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
    sizes, nodes = batches or [profile.batch], cluster.nodes
    chosen = list(
        candidates or (each for size in sizes for each in candidates_for(nodes, size, total_batch=total_batch))
    )
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
            why=_why(each, alone, cluster),
        )
        for each in prices
    ]
    fitting = [each for each in planned if within is None or each.seconds <= within] or planned
    ranked = sorted(fitting, key=lambda each: (each.amount, each.seconds, each.candidate.nodes))
    return Plan(tuple(ranked), goal, epochs, left_out)


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


def _why(price: Price, alone: Price | None, cluster: PlannedCluster) -> str:
    """Why it takes what it takes, in a sentence."""
    candidate = price.candidate
    if candidate.nodes == 1:
        return "nothing to exchange"
    narrowest, delay = _narrowest(candidate, cluster), _longest_delay(candidate, cluster)
    where = "" if narrowest == math.inf else f" at {format_bandwidth(narrowest)}"
    ratio = 8 * price.bytes_per_step / candidate.nodes / narrowest / price.compute_seconds
    exchange = f"exchange takes {_times(ratio)} computing{where}"
    waiting = price.waiting
    waited = price.step_seconds - price.compute_seconds
    if delay > 0 and waited > 2 * ratio * price.compute_seconds and waiting > 0.1:
        exchange = f"messages are {1000 * delay:.3g} ms on their way, and {_times(waited / delay)} that is waited for"
    slower = alone is not None and price.epoch_seconds > alone.epoch_seconds
    if slower:
        return f"{exchange}: slower than one node"
    traits = candidate.strategy.traits
    if traits.adapts:
        return "exchanges in the background, in the form that hides behind computing"
    if traits.partners == "neighbours":
        return f"neighbours only: {exchange}"
    if traits.partners == "servers" and ratio > 1:
        return f"servers get everybody's gradients at once: {waiting:.0%} of the time is waiting"
    if traits.replicas_differ and waiting < 0.1:
        return f"averaging every {traits.period} steps hides it: {exchange}"
    if traits.replicas_differ:
        return f"{exchange}, even every {traits.period} steps: {waiting:.0%} of the time is waiting"
    if waiting < 0.1:
        return f"hidden behind backward: {exchange}"
    return f"{exchange}: {waiting:.0%} of the time is waiting"


def _narrowest(candidate: Candidate, cluster: PlannedCluster) -> float:
    """Bits a second of the slowest cable that it uses, either way."""
    links = [cluster.network.link_of(f"h{node + 1}") for node in candidate.order or range(candidate.nodes)]
    if cluster.network.sites:
        links = [*links, cluster.network.between]
    return min(rate or math.inf for link in links for rate in (link.bandwidth_up, link.bandwidth_down))


def _longest_delay(candidate: Candidate, cluster: PlannedCluster) -> float:
    """Seconds from one rank to the next, at most."""
    hosts = len(candidate.order) or candidate.nodes
    wires = cluster.wires(hosts, candidate.order)
    return max((wires.delay(host, (host + 1) % hosts) for host in range(hosts)), default=0.0)


def _times(ratio: float) -> str:
    return f"{ratio:.1f}x" if ratio >= 0.1 else f"{ratio:.2f}x"
