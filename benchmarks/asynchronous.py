"""Asynchronous training against the number of workers: accuracy with and without counting gradients by their share.

python benchmarks/asynchronous.py
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import harness
from rich.console import Console
from rich.progress import track

from minga import Cluster, Experiment, Training, run

WORKERS = [1, 2, 4, 8, 16]
SEEDS = [0, 1, 2]
LEARNING_RATE = 0.01  # of Adam: the rate at which the collapse of asynchronous training was published
STRATEGIES = {
    "synchronous server": "ps:mode=sync",
    "asynchronous, Minga's default": "ps:mode=async",
    "asynchronous, every push at the full learning rate": "ps:mode=async,damping=none",
}
FIGURE = Path(__file__).parents[1] / "docs" / "results" / "asynchronous.svg"


def main() -> None:
    cells = [(seed, workers, name) for seed in SEEDS for workers in WORKERS for name in STRATEGIES]
    reached: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed, workers, name in track(cells, console=Console(stderr=True)):
            experiment = Experiment(
                workload="digits",
                strategy=STRATEGIES[name],  # type: ignore[arg-type]
                cluster=Cluster(nodes=workers),
                training=Training(seed=seed, evaluate_every=0, learning_rate=LEARNING_RATE),
                runs=folder,
            )
            reached.setdefault((name, workers), []).append(run(experiment).accuracy or 0.0)
    rows: list[dict[str, Any]] = [
        {
            "strategy": name,
            "workers": workers,
            "accuracy": statistics.median(reached[name, workers]),
            "lowest": min(reached[name, workers]),
            "highest": max(reached[name, workers]),
            "repetitions": len(SEEDS),
        }
        for name in STRATEGIES
        for workers in WORKERS
    ]
    harness.save("asynchronous", rows, "digits, 20 epochs, batch 16 per worker, Adam 0.01: test accuracy")
    draw(rows)


def draw(rows: list[dict[str, Any]]) -> None:
    """The figure at the top of the README."""
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "minga"
    figure, axes = plt.subplots(figsize=(7.6, 3.6), layout="constrained")
    for name, colour in zip(STRATEGIES, ("#888888", "#1b6ca8", "#d1495b"), strict=True):
        own = [row for row in rows if row["strategy"] == name]
        places = range(len(own))
        axes.fill_between(
            places,
            [100 * row["lowest"] for row in own],
            [100 * row["highest"] for row in own],
            color=colour,
            alpha=0.15,
        )
        axes.plot(places, [100 * row["accuracy"] for row in own], "o-", color=colour, label=name)
    axes.set_xticks(range(len(WORKERS)), [str(workers) for workers in WORKERS])
    axes.set(xlabel="workers", ylabel="test accuracy, %", ylim=(0, 103))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left", frameon=False)
    figure.savefig(FIGURE, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    import sys

    if sys.argv[1:] == ["--draw"]:  # only the figure, from the result file
        draw(json.loads((harness.RESULTS / "asynchronous.json").read_text())["rows"])
    else:
        main()
