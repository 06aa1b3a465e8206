"""Past this machine: how strategies scale to a thousand workers, at home, in an office and in a data centre. Simulated.

    python benchmarks/scale.py              # about 40 minutes
    python benchmarks/scale.py --draw       # only the figures, from the result file

Models are given by the shapes of their layers, devices by the time of a step, which is assumed (see PLACES).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
from rich.console import Console
from rich.progress import track

from minga.base.spec import describe
from minga.codecs import Half, PowerSGD
from minga.plan.candidates import Candidate
from minga.plan.cluster import CarrierCosts, PlannedCluster
from minga.plan.pricing import price
from minga.runs.network import Network
from minga.simulate.profile import CodecCost, Compute, Layer, Profile
from minga.strategies import Strategy

FIGURES = Path(__file__).parents[1] / "docs" / "results"
# What a message takes from a device that computes is little where a card of its own moves the bytes.
CARRIER = CarrierCosts(send_seconds_per_byte=0.0, receive_seconds_per_byte=1e-10)
NODES = [1, 2, 4, 8, 16, 64, 256, 1000]
STRATEGIES = {
    "all-reduce": "ring:bucket_bytes={bucket}",
    "parameter servers": "ps:mode=sync,servers={servers}",
    "all-reduce, PowerSGD": "halving_doubling:bucket_bytes={whole},codec=(power_sgd:rank=2)",
    "averaging every 64, 16 bits": "local_sgd:period=64,overlap=64,codec=half",
    "gossip, 16 bits": "gossip:algorithm=dpsgd,overlap=true,codec=half",
}
# A ring cuts each bucket into as many pieces as there are nodes: on a thousand of them, small buckets are all delay.
BUCKETS = 4
MOST_NODES = {"parameter servers": 64}
"""Beyond it, every worker with every server is more messages than can be gone through one by one in minutes."""


@dataclass(frozen=True)
class Model:
    name: str
    shapes: tuple[tuple[int, ...], ...]
    batch: int
    """Of a node, where each has its own."""
    total_batch: int
    """Of all nodes together, where they divide it."""

    @property
    def bytes(self) -> int:
        return 4 * sum(map(math.prod, self.shapes))


@dataclass(frozen=True)
class Place:
    name: str
    network: Network
    samples_per_second: dict[str, float]
    """Of a node, forward and backward: assumed."""
    memory: float
    """Bytes a second that a node's device goes through: assumed."""


def resnet50() -> tuple[tuple[int, ...], ...]:
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    wide = 64
    for planes, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            for one in ((planes, wide, 1, 1), (planes, planes, 3, 3), (4 * planes, planes, 1, 1)):
                shapes += [one, (one[0],), (one[0],)]
            if block == 0:
                shapes += [(4 * planes, wide, 1, 1), (4 * planes,), (4 * planes,)]
            wide = 4 * planes
    return (*shapes, (1000, 2048), (1000,))


def transformer(layers: int = 18, width: int = 2048, words: int = 50_257) -> tuple[tuple[int, ...], ...]:
    shapes: list[tuple[int, ...]] = [(words, width)]
    for _ in range(layers):
        shapes += [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width), (width,), (width,)]
    return tuple(shapes)


MODELS = (
    Model("ResNet-50", resnet50(), batch=64, total_batch=8192),
    Model("transformer, 1 B", transformer(), batch=4, total_batch=1024),
)
# A sample of the transformer is a text of 1,024 words.
PLACES = (
    Place(
        "homes, 10 Mbit/s",
        Network(bandwidth="10mbit", delay="15ms"),  # type: ignore[arg-type]
        {"ResNet-50": 150.0, "transformer, 1 B": 2.0},
        memory=1e11,
    ),
    Place(
        "an office, 1 Gbit/s",
        Network(bandwidth="1gbit", delay="0.2ms"),  # type: ignore[arg-type]
        {"ResNet-50": 300.0, "transformer, 1 B": 5.0},
        memory=2e11,
    ),
    Place(
        "a data centre, 100 Gbit/s",
        Network(bandwidth="100gbit", delay="0.02ms"),  # type: ignore[arg-type]
        {"ResNet-50": 2500.0, "transformer, 1 B": 40.0},
        memory=1e12,
    ),
)


def profile_of(model: Model, place: Place) -> Profile:
    sizes = [math.prod(shape) for shape in model.shapes]
    parameters, below = sum(sizes), 0
    layers = []
    for number, (shape, size) in enumerate(zip(model.shapes, sizes, strict=True)):
        layers.append(Layer(name=f"{number}", shape=shape, ready=1 - below / parameters))
        below += size
    second = 1 / place.samples_per_second[model.name]
    touch = 4 * parameters / place.memory
    codecs = {
        describe(Half()): CodecCost(encode=touch, decode=touch),
        describe(PowerSGD(rank=2)): CodecCost(encode=6 * touch, decode=4 * touch),
    }
    return Profile(
        workload=model.name,
        layers=tuple(layers),
        compute=(
            Compute(batch=1, forward=second / 3, backward=2 * second / 3),
            Compute(batch=1024, forward=1024 * second / 3, backward=2 * 1024 * second / 3),
        ),
        update_seconds=3 * touch,
        pass_seconds=touch,
        samples=1_281_167,
        batch=model.batch,
        codecs=codecs,
    )


def cells() -> Iterator[tuple[Model, Place, str, str, int]]:
    for model in MODELS:
        for place in PLACES:
            for scaling in ("weak", "strong"):
                for strategy in STRATEGIES:
                    for nodes in NODES:
                        if nodes <= MOST_NODES.get(strategy, nodes):
                            yield model, place, scaling, strategy, nodes


def measure() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    alone: dict[Any, float] = {}
    for model, place, scaling, strategy, nodes in track(list(cells()), console=Console(stderr=True)):
        batch = model.batch if scaling == "weak" else max(1, model.total_batch // nodes)
        spec = (
            "single"
            if nodes == 1
            else STRATEGIES[strategy].format(
                servers=max(1, nodes // 4), bucket=model.bytes // BUCKETS, whole=model.bytes
            )
        )
        began = time.perf_counter()
        found = price(
            Candidate(Strategy.from_value(spec), nodes, batch),
            profile_of(model, place),
            PlannedCluster(nodes=nodes, network=place.network, carrier=CARRIER),
            varied=False,
        )
        key = (model.name, place.name, scaling)
        alone.setdefault(key, found.samples_per_second)
        rows.append(
            {
                "model": model.name,
                "place": place.name,
                "scaling": scaling,
                "strategy": strategy,
                "nodes": nodes,
                "batch of a node": batch,
                "seconds of a step": found.step_seconds,
                "samples per second": found.samples_per_second,
                "times one node": found.samples_per_second / alone[key],
                "waiting": found.waiting,
                "MB sent by a node in a step": found.bytes_per_step / nodes / 1e6,
                "simulated in": time.perf_counter() - began,
            }
        )
    return rows


def draw(rows: list[dict[str, Any]]) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter

    colours = dict(zip(STRATEGIES, ("#1b6ca8", "#e09f3e", "#2a9d8f", "#d1495b", "#777777"), strict=True))
    for scaling in ("weak", "strong"):
        figure, axes = plt.subplots(len(MODELS), len(PLACES), figsize=(11, 6.4), sharex=True, sharey=True)
        for row, model in enumerate(MODELS):
            for column, place in enumerate(PLACES):
                axis = axes[row][column]
                axis.plot(NODES, NODES, color="#bbbbbb", linestyle=":", linewidth=1.5)
                axis.axhline(1, color="#bbbbbb", linewidth=0.8)
                for strategy, colour in colours.items():
                    line = [
                        (each["nodes"], each["times one node"])
                        for each in rows
                        if (each["model"], each["place"], each["scaling"], each["strategy"])
                        == (model.name, place.name, scaling, strategy)
                    ]
                    axis.plot(*zip(*line, strict=True), color=colour, marker="o", markersize=3, label=strategy)
                axis.set(xscale="log", yscale="log", title=f"{model.name}, {place.name}")
                axis.title.set_fontsize(9)
                axis.spines[["top", "right"]].set_visible(False)
                if row == len(MODELS) - 1:
                    axis.set_xlabel("nodes")
                if column == 0:
                    axis.set_ylabel("times one node")
                for side in (axis.xaxis, axis.yaxis):
                    side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}"))
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, fontsize=9, loc="lower center", ncols=len(labels))
        figure.tight_layout(rect=(0, 0.05, 1, 1))
        figure.savefig(FIGURES / f"scale_{scaling}.svg")
        plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draw", action="store_true", help="only the figures, from the result file")
    if not parser.parse_args().draw:
        rows = measure()
        note = "simulated by sizes; devices, links and strategies as in benchmarks/scale.py"
        harness.write("scale", rows, note)
        harness.show([row for row in rows if row["nodes"] in (16, 1000)], note)
    draw(json.loads((harness.RESULTS / "scale.json").read_text())["rows"])


if __name__ == "__main__":
    main()
