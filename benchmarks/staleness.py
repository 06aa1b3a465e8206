"""What being late costs: accuracy of two replicas that exchange at fixed steps, in several forms, against one node.

    MINGA_DATA=DIR python benchmarks/staleness.py                # about ten minutes; seconds don't count
    MINGA_DATA=DIR python benchmarks/staleness.py --quick        # does it all work? nothing is saved

This is what `adaptive` keeps small as staleness (minga/strategies/rungs.py). Data: tiny Shakespeare.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from typing import Any

import harness
from contest import PROBLEMS, QUICK_PROBLEMS
from rich.console import Console
from rich.progress import track

from minga import Cluster, Experiment, Training, run

SEEDS = [3, 4]
CONTESTANTS = [
    ("every gradient", "ring", None),
    ("whole numbers", "local_sgd:period=1,overlap=1", 1.0),
    ("4 bits", "local_sgd:period=1,overlap=1,codec=int4", 1.0),
    ("signs", "local_sgd:period=1,overlap=1,codec=sign", 1.0),
    ("PowerSGD of rank 16", "local_sgd:period=1,overlap=1,codec=(power_sgd:rank=16,factors=int8)", 1.0),
    ("whole numbers, every second step", "local_sgd:period=2,overlap=1", 1.5),
    ("whole numbers, every second step, two steps late", "local_sgd:period=2,overlap=2", 2.5),
]
"""What is exchanged, the strategy, and the steps of a replica that others don't know of on average."""


def accuracy(strategy: str, seed: int, *, quick: bool) -> float:
    problem = (QUICK_PROBLEMS if quick else PROBLEMS)["shakespeare"]
    with tempfile.TemporaryDirectory() as folder:
        summary = run(
            Experiment(
                workload=problem.workload,
                strategy=strategy,  # type: ignore[arg-type]
                cluster=Cluster(nodes=1 if strategy == "single" else 2, threads=1),
                training=Training(epochs=1, total_batch=problem.total_batch, evaluate_every=0, seed=seed),
                runs=folder,
            )
        )
    assert summary.quality is not None
    return 100 * summary.quality


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few samples, one seed, nothing saved")
    quick = parser.parse_args().quick
    seeds = SEEDS[:1] if quick else SEEDS
    found: dict[str, list[float]] = {}
    turns = [(strategy, seed) for seed in seeds for strategy in ["single", *(each for _, each, _ in CONTESTANTS)]]
    for strategy, seed in track(turns, "training", console=Console(stderr=True), transient=True):
        found.setdefault(strategy, []).append(accuracy(strategy, seed, quick=quick))
    rows: list[dict[str, Any]] = []
    for name, strategy, steps in CONTESTANTS:
        points = [mine - alone for mine, alone in zip(found[strategy], found["single"], strict=True)]
        each = {f"seed {seed}": value for seed, value in zip(seeds, points, strict=True)}
        rows.append(
            {"exchanged": name, "strategy": strategy, "steps unknown": steps, "points": statistics.mean(points), **each}
        )
    note = "transformer on tiny Shakespeare, two nodes, 1 epoch, 64 pieces in a step: points of accuracy to one node"
    if quick:
        harness.show(rows, note)
    else:
        harness.save("staleness", rows, note)


if __name__ == "__main__":
    main()
