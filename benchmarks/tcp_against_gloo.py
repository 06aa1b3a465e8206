"""Minga's transport over TCP connections of its own against gloo's: short and long messages, all-reduces, side by side.

python benchmarks/tcp_against_gloo.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import harness
import torch

from minga.comm import Transport, barrier
from minga.comm.collectives import COLLECTIVES
from minga.comm.rendezvous import join_meeting
from minga.comm.tcp import DataListener, TcpTransport
from minga.comm.torch_dist import TorchTransport
from minga.net.generation import Generation, MemberInfo

RANKS = [2, 4]
MEGABYTES = [1, 10]
REPETITIONS = {"round trip of 1 kB": 300, "message of 1 MB": 100, "all-reduce of 1 MB": 60, "all-reduce of 10 MB": 30}
# A short round trip is timed several times in a row: one alone is near what the clock and the barrier disturb.
TRIPS = 20


def meet(store: Any, rank: int, ranks: int, listener: DataListener) -> Generation:
    """All ranks' listeners, found through the store."""
    store.set(f"benchmark/{rank}", str(listener.port))
    members = [
        MemberInfo(id=f"node-{other}", incarnation="0", address="127.0.0.1", port=int(store.get(f"benchmark/{other}")))
        for other in range(ranks)
    ]
    return Generation(number=1, members=tuple(members), secret="00" * 32)


def round_trips(comm: Transport, count: int, numbers: int, answered: int) -> None:
    """Between ranks 0 and 1: something of one size there, something of another one back."""
    there, back = torch.zeros(numbers), torch.zeros(answered)
    for _ in range(count):
        if comm.rank == 0:
            arrival = comm.ireceive(back, 1)
            comm.send(there, 1)
            arrival.wait()
        elif comm.rank == 1:
            comm.receive(there, 0)
            comm.send(back, 0)


def rank_main(arguments: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    rank, ranks = arguments["rank"], arguments["ranks"]
    store = join_meeting("127.0.0.1", arguments["port"], "minga", 60)
    gloo = TorchTransport(store, rank=rank, size=ranks, address="127.0.0.1")
    results = {}
    with DataListener("127.0.0.1") as listener:
        tcp = TcpTransport(meet(store, rank, ranks, listener), rank, listener)

        def timed(comm: Transport, action: Callable[[Transport], None], times: int = 1) -> float:
            barrier(gloo)
            began = time.perf_counter()
            action(comm)
            return (time.perf_counter() - began) / times

        def compare(what: str, contestants: Mapping[str, Callable[[], float]]) -> None:
            results[what] = harness.alternate(contestants, REPETITIONS[what], quiet=True)

        if ranks == 2:
            compare(
                "round trip of 1 kB",
                {
                    name: lambda comm=comm: timed(comm, lambda comm: round_trips(comm, TRIPS, 250, 250), TRIPS)
                    for name, comm in {"gloo": gloo, "tcp": tcp}.items()
                },
            )
            compare(
                "message of 1 MB",
                {
                    name: lambda comm=comm: timed(comm, lambda comm: round_trips(comm, 1, 250_000, 1))
                    for name, comm in {"gloo": gloo, "tcp": tcp}.items()
                },
            )
        for megabytes in MEGABYTES:
            vector = torch.zeros(megabytes * 250_000)
            compare(
                f"all-reduce of {megabytes} MB",
                {
                    "gloo": lambda vector=vector: timed(gloo, lambda comm: COLLECTIVES["native"](comm, vector)),
                    "ring over gloo": lambda vector=vector: timed(gloo, lambda comm: COLLECTIVES["ring"](comm, vector)),
                    "tcp": lambda vector=vector: timed(tcp, lambda comm: COLLECTIVES["ring"](comm, vector)),
                },
            )
        tcp.close()
    gloo.close()
    return results


def main() -> None:
    rows: list[dict[str, Any]] = []
    for ranks in RANKS:
        by_rank = harness.on_ranks("tcp_against_gloo:rank_main", ranks, {})
        for what in by_rank[0]:
            # An exchange is done when its slowest rank is done.
            names = list(by_rank[0][what])
            seconds = {
                name: [max(times) for times in zip(*(each[what][name] for each in by_rank), strict=True)]
                for name in names
            }
            row: dict[str, Any] = {"ranks": ranks, "what": what}
            row["gloo, ms"] = 1000 * statistics.median(seconds["gloo"])
            row["tcp, ms"] = 1000 * statistics.median(seconds["tcp"])
            row["tcp / gloo"] = harness.median_ratio(seconds, "tcp", "gloo")
            ring = "ring over gloo"
            row["tcp / ring over gloo"] = harness.median_ratio(seconds, "tcp", ring) if ring in names else "-"
            rows.append({**row, "repetitions": REPETITIONS[what]})
    harness.save("tcp_against_gloo", rows, "float32 on loopback, two cores: time relative to gloo's")


if __name__ == "__main__":
    main()
