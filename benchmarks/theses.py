"""The models of the theses on their data: what they reach, on one node and on several. Accuracy and BLEU, not time.

MINGA_DATA=DIR python benchmarks/theses.py lenet5       # MNIST: single, 4 workers with each way, 8 asynchronous ones
MINGA_DATA=DIR python benchmarks/theses.py nielsen
MINGA_DATA=DIR python benchmarks/theses.py cifar10      # a part of CIFAR-10, 3 epochs
MINGA_DATA=DIR python benchmarks/theses.py captions     # Flickr8k, then BLEU of the test split

Each writes benchmarks/results/theses_NAME.json. What is reached does not depend on how busy the machine is (but for
asynchronous servers, whose workers may be later), so these may run beside other things.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import harness

from minga import Cluster, Experiment, Summary, Training, run
from minga.evaluate import Bleu
from minga.workloads.captions.speaking import Speaker

RECIPES = Path(__file__).parent / "recipes.py"


def train(workload: str, folder: str, *, strategy: str, nodes: int, **training: Any) -> Summary:
    print(f"{workload}, {nodes} nodes, {strategy} ...", file=sys.stderr, flush=True)
    return run(
        Experiment(
            workload=workload,
            strategy=strategy,
            cluster=Cluster(nodes=nodes),
            training=Training(**{"evaluate_every": 0, **training}),
            runs=folder,
        )
    )


def row(summary: Summary, **more: Any) -> dict[str, Any]:
    return {
        "workload": summary.workload.rpartition("/")[2],
        "strategy": summary.strategy,
        "nodes": summary.nodes,
        "seed": summary.seed,
        "epochs": round(summary.epochs, 3),
        "steps": summary.steps,
        str(summary.metric): summary.quality,
        **more,
    }


def lenet5(folder: str, seeds: int) -> tuple[list[dict[str, Any]], str]:
    ways = ["ring", "ps:mode=sync", "ps:mode=ssp,staleness=3", "switch", "local_sgd:period=8"]
    cells = [("single", 1), *((way, 4) for way in ways), ("ps:mode=async", 8)]
    rows = [
        row(train("mnist-lenet5", folder, strategy=way, nodes=nodes, total_batch=64, seed=seed))
        for seed in range(seeds)
        for way, nodes in cells
    ]
    return rows, "LeNet-5 on all of MNIST, 10 epochs, 64 samples in a step of all nodes: test accuracy"


def nielsen(folder: str, seeds: int) -> tuple[list[dict[str, Any]], str]:
    rows = [row(train("mnist-nielsen", folder, strategy="single", nodes=1, seed=seed)) for seed in range(seeds)]
    return rows, "Nielsen's network on all of MNIST, 20 epochs, batch 10: test accuracy"


def cifar10(folder: str, seeds: int) -> tuple[list[dict[str, Any]], str]:
    cells = [("single", 1), ("ring", 2), ("local_sgd:period=4", 2)]
    rows = [
        row(train(f"{RECIPES}:cifar10", folder, strategy=way, nodes=nodes, epochs=3, total_batch=64, seed=seed))
        for seed in range(seeds)
        for way, nodes in cells
    ]
    return rows, "the thesis' network on 2,000 pictures of CIFAR-10, 3 epochs: accuracy on 2,000 others"


def captions(folder: str, seeds: int) -> tuple[list[dict[str, Any]], str]:
    rows = []
    for seed in range(seeds):
        for way, nodes in (("single", 1), ("adaptive", 2)):
            summary = train(
                "flickr8k-captions", folder, strategy=way, nodes=nodes, seed=seed, total_batch=64, evaluate_every=1
            )
            speaker = Speaker.of(Path(summary.run))
            for beam in (1, 3, 5):
                reached = speaker.score("test", beam=beam)
                strict = without_single_letters(speaker, beam)
                tested = {f"test {name}": value for name, value in reached.items()}
                rows.append(row(summary, beam=beam, **tested, **strict))
    return rows, "Flickr8k, standard test split; the last column leaves words of one letter out"


def without_single_letters(speaker: Speaker, beam: int) -> dict[str, float]:
    """BLEU-1 without `a`, which some publications leave out."""
    said, references = speaker.said_of("test", beam=beam)
    metric = Bleu(order=1, ignored=speaker.content.vocabulary.single_letters)
    return {"test BLEU-1 without a": metric.value(metric.state(said, references))}


PARTS = {"lenet5": lenet5, "nielsen": nielsen, "cifar10": cifar10, "captions": captions}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--seeds", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows, note = PARTS[chosen.part](folder, chosen.seeds)
    harness.save(f"theses_{chosen.part}", rows, note, script="theses")


if __name__ == "__main__":
    main()
