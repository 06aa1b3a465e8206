"""Delay decides who wins: 256 MB on four nodes at 1 Gbit/s, all-reduce against servers. Simulated, and as published.

python benchmarks/latency_flip.py               # about a minute
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import harness
from rich.console import Console
from rich.progress import track

from minga.comm.simulated import Carrier
from minga.plan.candidates import Candidate
from minga.plan.cluster import CarrierCosts, PlannedCluster
from minga.plan.pricing import price
from minga.runs.network import Network
from minga.simulate.profile import Compute, Layer, Profile
from minga.strategies import Strategy

NODES = 4
DELAYS = [0, 10, 20, 30, 40, 50]
# 64 layers of 4 MB, and hardly any computing: what was published is the time of an exchange.
PROFILE = Profile(
    workload="256 MB",
    layers=tuple(Layer(name=f"{number}", shape=(1_000_000,)) for number in range(64)),
    compute=(Compute(batch=1, forward=5e-4, backward=5e-4),),
    update_seconds=0.0,
    samples=NODES * 100,
    batch=1,
)
# The published all-reduce grows by 88 times the delay: about fifteen rings of six hops, one after the other,
# which is buckets of 17 MB. The number of servers, which was not said either, is by their time without delay.
STRATEGIES = {
    "all-reduce, buckets of 16 MB": "ring:bucket_bytes=16000000",
    "all-reduce, buckets of 24 MB": "ring:bucket_bytes=24000000",
    "all-reduce, one bucket": "ring:bucket_bytes=1000000000",
    "three servers": "ps:mode=sync,servers=3",
    "four servers": "ps:mode=sync,servers=4",
}
FREE = {"send_seconds": 0, "receive_seconds": 0, "send_seconds_per_byte": 0, "receive_seconds_per_byte": 0}


class WithoutWords(CarrierCosts):
    """Long messages go at once, whether or not the receiver is ready."""

    def carrier(self) -> Carrier:
        return replace(super().carrier(), rendezvous_bytes=math.inf)


class OpenWindows(CarrierCosts):
    """Connections send as much as the cable takes from their first byte on."""

    def carrier(self) -> Carrier:
        return replace(super().carrier(), initial_window=1 << 40)


CARRIERS = {
    "as Minga's transport": CarrierCosts(),
    "cables alone": CarrierCosts(**FREE, wake_seconds=0),
    "cables alone, no words": WithoutWords(**FREE, wake_seconds=0),
    "cables alone, open windows": OpenWindows(**FREE, wake_seconds=0),
}
PUBLISHED = {("all-reduce", 10): 4.06, ("servers", 10): 5.55, ("all-reduce", 50): 7.57, ("servers", 50): 6.65}


def seconds(spec: str, delay: int, carrier: CarrierCosts) -> float:
    network = Network(bandwidth="1gbit", delay=f"{delay}ms")  # type: ignore[arg-type]
    cluster = PlannedCluster(nodes=NODES, network=network, carrier=carrier)
    return price(Candidate(Strategy.from_value(spec), NODES, 1), PROFILE, cluster, varied=False).step_seconds


def main() -> None:
    cells = [
        (strategy, delay, costs)
        for strategy in STRATEGIES
        for costs in CARRIERS
        for delay in (DELAYS if costs == "as Minga's transport" else [10, 50])
    ]
    rows: list[dict[str, Any]] = []
    for strategy, delay, costs in track(cells, console=Console(stderr=True), transient=True):
        found = seconds(STRATEGIES[strategy], delay, CARRIERS[costs])
        kind = "all-reduce" if "all-reduce" in strategy else "servers"
        rows.append(
            {
                "strategy": strategy,
                "delay_ms": delay,
                "costs": costs,
                "simulated_seconds": round(found, 3),
                "published_seconds": PUBLISHED.get((kind, delay)),
            }
        )
    note = "256 MB on four nodes at 1 Gbit/s, one exchange; simulated, sizes only"
    harness.show(rows, note)
    harness.write("latency_flip", rows, note)


if __name__ == "__main__":
    main()
