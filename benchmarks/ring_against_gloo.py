"""Minga's own ring against gloo's all-reduce, on the same connections, side by side.

python benchmarks/ring_against_gloo.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

import harness
import torch

from minga.comm import barrier
from minga.comm.collectives import COLLECTIVES
from minga.comm.rendezvous import join_meeting
from minga.comm.torch_dist import TorchTransport

MEGABYTES = [1, 5, 50]
RANKS = [2, 4]
REPETITIONS = {1: 60, 5: 40, 50: 12}
CONTESTANTS = ["native", "ring", "halving_doubling", "mesh"]


def rank_main(arguments: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    store = join_meeting("127.0.0.1", arguments["port"], "minga", 60)
    comm = TorchTransport(store, rank=arguments["rank"], size=arguments["ranks"], address="127.0.0.1")

    def timed(name: str, vector: torch.Tensor) -> float:
        barrier(comm)
        began = time.perf_counter()
        COLLECTIVES[name](comm, vector)
        return time.perf_counter() - began

    results = {}
    for megabytes in MEGABYTES:
        vector = torch.zeros(megabytes * 1_000_000 // 4)
        contestants = {name: lambda name=name, vector=vector: timed(name, vector) for name in CONTESTANTS}
        results[str(megabytes)] = harness.alternate(contestants, REPETITIONS[megabytes], quiet=True)
    comm.close()
    return results


def main() -> None:
    rows: list[dict[str, Any]] = []
    for ranks in RANKS:
        results = harness.on_ranks("ring_against_gloo:rank_main", ranks, {})
        for megabytes in MEGABYTES:
            # A collective is done when its slowest rank is done.
            by_rank = [result[str(megabytes)] for result in results]
            seconds = {
                name: [max(times) for times in zip(*(each[name] for each in by_rank), strict=True)]
                for name in CONTESTANTS
            }
            row: dict[str, Any] = {"ranks": ranks, "MB": megabytes}
            row["gloo, ms"] = 1000 * statistics.median(seconds["native"])
            for name in CONTESTANTS[1:]:
                row[f"{name}, ms"] = 1000 * statistics.median(seconds[name])
                row[f"{name} / gloo"] = harness.median_ratio(seconds, name, "native")
            rows.append({**row, "repetitions": REPETITIONS[megabytes]})
    harness.save("ring_against_gloo", rows, "all-reduce of float32 on loopback, two cores: time relative to gloo's own")


if __name__ == "__main__":
    main()
