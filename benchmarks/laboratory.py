"""Does a lab do what is asked of it? Rates, delays, and bytes counted by the transport and by the interfaces.

python benchmarks/laboratory.py          # about three minutes; Linux, as root or with user namespaces
"""

from __future__ import annotations

import statistics
import tempfile
from typing import Any

import harness

from minga import Cluster, Experiment, Training, run
from minga.lab import Lab
from minga.runs.network import Network

REPETITIONS = 5
HOSTS = 4
LINKS = [
    {"bandwidth": "10mbit"},
    {"bandwidth": "100mbit"},
    {"bandwidth": "1gbit"},
    {"bandwidth": "10mbit", "delay": "20ms"},
    {"bandwidth": "100mbit", "delay": "5ms"},
    {"bandwidth": "1gbit", "delay": "20ms"},
    {"bandwidth": "100mbit", "delay": "100ms"},
]
STRATEGIES = ["native", "ring", "tree", "halving_doubling", "mesh", "ps:mode=sync", "ps:mode=async"]


def links() -> list[dict[str, Any]]:
    """Of all measurements of all hosts: the median, and the ones that are farthest off."""
    rows = []
    for asked in LINKS:
        network = Network(**asked)  # type: ignore[arg-type]
        rates, delays = [], []
        for _ in range(REPETITIONS):
            with Lab(network, HOSTS) as lab:
                for link in lab.measure().links:
                    rates += [link["up_measured"], link["down_measured"]]
                    delays.append(link["delay_measured"])
        rows.append(
            {
                "asked": ", ".join(asked.values()),
                "Mbit/s, median": statistics.median(rates) / 1e6,
                "lowest": min(rates) / 1e6,
                "highest": max(rates) / 1e6,
                "ms, median": 1000 * statistics.median(delays),
                "least": 1000 * min(delays),
                "most": 1000 * max(delays),
                "measurements": len(delays),
            }
        )
    return rows


def traffic() -> list[dict[str, Any]]:
    """What interfaces counted relative to what the transport counted, of the rank that is farthest off."""
    rows = []
    for strategy in STRATEGIES:
        with tempfile.TemporaryDirectory() as folder:
            summary = run(
                Experiment(
                    workload="digits",
                    strategy=strategy,  # type: ignore[arg-type]
                    cluster=Cluster(nodes=HOSTS, network=Network(bandwidth=100e6)),
                    training=Training(steps=60),
                    runs=folder,
                )
            )
        ratios = [rank.interface["payload_sent"] / rank.bytes_sent for rank in summary.ranks if rank.interface]
        whole = [rank.interface["bytes_sent"] / rank.bytes_sent for rank in summary.ranks if rank.interface]
        rows.append({"strategy": strategy, "payload ratio": max(ratios), "ratio with headers": max(whole)})
    return rows


def main() -> None:
    harness.save(
        "laboratory_links", links(), f"links of {HOSTS} hosts, TCP payload, {REPETITIONS} labs each", "laboratory"
    )
    harness.save(
        "laboratory_bytes",
        traffic(),
        f"interface / transport, digits on {HOSTS} hosts, 100mbit, 60 steps",
        "laboratory",
    )


if __name__ == "__main__":
    main()
