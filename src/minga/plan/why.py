"""Why a candidate takes what it takes, in a sentence."""

from __future__ import annotations

import math

from minga.plan.cluster import PlannedCluster
from minga.plan.pricing import Price
from minga.strategies import Adaptive, DiLoCo, Gossip, LocalSGD, ParameterServer
from minga.units import format_bandwidth

__all__ = ["why"]


def why(price: Price, alone: Price | None, cluster: PlannedCluster) -> str:
    candidate, strategy = price.candidate, price.candidate.strategy
    if candidate.nodes == 1:
        return "nothing to exchange"
    link = cluster.network.link_of("h1")
    where = f" at {format_bandwidth(link.bandwidth_up)}" if link.bandwidth_up else ""
    ratio = _wire_seconds(price, cluster) / price.compute_seconds
    exchange = f"exchange takes {_times(ratio)} computing{where}"
    waiting = price.waiting
    slower = alone is not None and price.epoch_seconds > alone.epoch_seconds
    if slower:
        return f"{exchange}: slower than one node"
    match strategy:
        case Adaptive():
            return "exchanges in the background, in the form that hides behind computing"
        case LocalSGD() | DiLoCo() if waiting < 0.1:
            return f"averaging every {strategy.period} steps hides it: {exchange}"
        case LocalSGD() | DiLoCo():
            return f"{exchange}, even every {strategy.period} steps: {waiting:.0%} of the time is waiting"
        case Gossip():
            return f"neighbours only: {exchange}"
        case ParameterServer() if ratio > 1:
            return f"servers get everybody's gradients at once: {waiting:.0%} of the time is waiting"
    if waiting < 0.1:
        return f"hidden behind backward: {exchange}"
    return f"{exchange}: {waiting:.0%} of the time is waiting"


def _wire_seconds(price: Price, cluster: PlannedCluster) -> float:
    """Of what a node sends in a step, over the narrowest cable."""
    nodes = range(price.candidate.nodes)
    rates = [cluster.network.link_of(f"h{node + 1}").bandwidth_up or math.inf for node in nodes]
    return 8 * price.bytes_per_step / price.candidate.nodes / min(rates)


def _times(ratio: float) -> str:
    return f"{ratio:.1f}x" if ratio >= 0.1 else f"{ratio:.2f}x"
