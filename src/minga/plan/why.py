"""Why a candidate takes what it takes, in a sentence."""

from __future__ import annotations

import math

from minga.base.units import format_bandwidth
from minga.plan.candidates import Candidate
from minga.plan.cluster import PlannedCluster
from minga.plan.pricing import Price

__all__ = ["why"]


def why(price: Price, alone: Price | None, cluster: PlannedCluster) -> str:
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
