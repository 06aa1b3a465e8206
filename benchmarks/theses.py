"""The models of the theses on their data: what they reach, on one node and on several.

    MINGA_DATA=DIR python benchmarks/theses.py lenet5              # one part; several may be named
    MINGA_DATA=DIR python benchmarks/theses.py all --quick         # some minutes: does it all work?
    MINGA_DATA=DIR python benchmarks/theses.py captions --seeds 0 1
    python benchmarks/theses.py --page                             # only docs/results/theses.md, from the result files

Each part writes benchmarks/results/theses_PART.json after every run. A benchmark that was stopped goes on where it was.
Accuracy and BLEU don't depend on how busy the machine is, but for asynchronous servers; seconds and joules do.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import contest
import harness
import thesis_page
from thesis_runs import Cell, KeptRows, Part, Row, measure, progress_over
from torch.utils.data import TensorDataset

from minga import Summary
from minga.errors import MingaError
from minga.metrics.bleu_of_texts import bleu_of_texts
from minga.runs.experiment import load
from minga.runs.workload import load_workload
from minga.training.trained import load_trained

RECIPES = Path(__file__).parent / "recipes.py"
SHOWN_CAPTIONS = 12

Ways = Sequence[tuple[str, int]]


def each_way(workload: str, ways: Ways, seeds: Sequence[int], training: Mapping[str, Any]) -> list[Cell]:
    """Each way of training, a strategy and its nodes, with each seed."""
    return [
        Cell(workload=workload, strategy=way, nodes=nodes, seed=seed, training=training)
        for seed in seeds
        for way, nodes in ways
    ]


def lenet5(seeds: Sequence[int], quick: bool) -> Part:
    ways = ["ring", "ps:mode=sync", "ps:mode=ssp,staleness=3", "switch", "local_sgd:period=8"]
    training: dict[str, Any] = {"steps": 20} if quick else {}
    cells = []
    for seed in seeds:
        for way, nodes in [("single", 1), *((way, 4) for way in ways), ("ps:mode=async", 8)]:
            shared = {**training, "total_batch": 64}
            cells.append(Cell(workload="mnist-lenet5", strategy=way, nodes=nodes, seed=seed, training=shared))
        # The recipe under which published asynchronous training fell to 10 to 47 %: Adam with 0.01, 64 for each worker.
        cells.append(
            Cell(workload="mnist-lenet5-adam", strategy="ps:mode=async", nodes=8, seed=seed, training=training)
        )
    return Part(title="LeNet-5 on all of MNIST: test accuracy", cells=cells)


def nielsen(seeds: Sequence[int], quick: bool) -> Part:
    training: dict[str, Any] = {"steps": 20} if quick else {}
    cells = [Cell(workload="mnist-nielsen", strategy="single", nodes=1, seed=seed, training=training) for seed in seeds]
    return Part(title="Nielsen's network on all of MNIST, 20 epochs, batch 10: test accuracy", cells=cells)


def cifar10(seeds: Sequence[int], quick: bool) -> Part:
    workload = f"{RECIPES}:cifar10{'_quick' if quick else ''}"
    # A rate at which so few steps learn something: with 0.01, the workload's own, the loss rises for the first hundred.
    training = {"epochs": 1 if quick else 3, "total_batch": 64, "learning_rate": 0.003}
    cells = each_way(workload, [("single", 1), ("ring", 2), ("local_sgd:period=4", 2)], seeds, training)
    apart = {**training, "batch_norm": "each_node"}
    cells += [Cell(workload=workload, strategy="ring", nodes=2, seed=seed, training=apart) for seed in seeds[:1]]
    return Part(
        title="the Kubeflow thesis' network on 4,000 pictures of CIFAR-10, 3 epochs: accuracy on all its test pictures",
        cells=cells,
        tell=lambda summary: [{"BatchNorm over": batch_norm_of(summary)}],
    )


def batch_norm_of(summary: Summary) -> str:
    """Whose samples BatchNorm has normalised over."""
    experiment = load(Path(summary.run) / "experiment.toml")
    together = experiment.training.batch_norm == "all_nodes" and summary.strategy == "ring"
    return "the whole batch" if together or summary.nodes == 1 else "each node's own"


def keras(seeds: Sequence[int], quick: bool) -> Part:
    workload = f"{RECIPES}:keras_cifar10{'_quick' if quick else ''}"
    # Keras' BatchNormalization takes some hundred steps to know its inputs (momentum 0.99), hence small batches.
    training = {"epochs": 1 if quick else 2, "total_batch": 16, "learning_rate": 0.003}
    cells = each_way(workload, [("single", 1), ("ring", 2), ("local_sgd:period=4", 2)], seeds, training)
    title = "examples/keras_cifar10.py on 4,000 pictures of CIFAR-10: what was trained here, loaded and tested by Keras"
    return Part(title=title, cells=cells, tell=lambda summary: [back_in_keras(summary)])


def back_in_keras(summary: Summary) -> Row:
    """What Keras itself says of the saved file, on the same test pictures."""
    import minga.keras  # chooses Keras' backend, so it comes first

    from keras.saving import load_model  # isort: skip

    run = Path(summary.run)
    path = minga.keras.save(run, run / "trained.keras")
    experiment = load(run / "experiment.toml")
    test = load_workload(experiment.workload, experiment.data).test
    assert isinstance(test, TensorDataset)
    pictures, classes = (tensor.numpy() for tensor in test.tensors)
    found = load_model(path).evaluate(pictures, classes, batch_size=250, verbose=0, return_dict=True)
    return {"accuracy told by Keras": found["accuracy"], "file MB": path.stat().st_size / 1e6}


def resnet34(seeds: Sequence[int], quick: bool) -> Part:
    workload = f"{RECIPES}:pictures_in_folders{'_quick' if quick else ''}"
    # With the thesis' rate of 0.05 the first epochs of so few pictures are chaos: no two trainings can be compared.
    training = {"epochs": 1 if quick else 3, "total_batch": 8 if quick else 32, "learning_rate": 0.005}
    cells = each_way(workload, [("single", 1), ("ring", 2)], seeds, training)
    title = "ResNet-34 on a folder of pictures, 197x148, grey: seconds of each phase (the slowest rank's), energy, EDP"
    return Part(title=title, cells=cells, tell=lambda summary: [phases_and_energy(summary)])


def phases_and_energy(summary: Summary) -> Row:
    slowest = max(summary.ranks, key=lambda rank: rank.work_seconds + rank.wait_seconds)
    energy = summary.energy
    return {
        **{f"{phase} s": seconds for phase, seconds in slowest.phases.items()},
        "waiting s": slowest.wait_seconds,
        "evaluation s": summary.evaluate_seconds,
        "kJ": energy.joules / 1e3 if energy is not None else None,
        "energy from": energy.source if energy is not None else None,
        "EDP, kJ s": None if summary.energy_delay_product is None else summary.energy_delay_product / 1e3,
    }


def captions(seeds: Sequence[int], quick: bool) -> Part:
    training: dict[str, Any] = {"total_batch": 64, "evaluate_every": 1}
    if quick:
        training["steps"] = 20
    cells = [
        Cell(workload="flickr8k-captions", strategy=way, nodes=nodes, seed=seed, bandwidth=10.0, training=training)
        for seed in seeds
        for way, nodes in (("single", 1), ("adaptive", 2))
    ]
    title = "Flickr8k captions on hosts of a lab with a core each: BLEU of the standard test split by width of the beam"
    return Part(title=title, cells=cells, tell=lambda summary: spoken(summary, (1, 2) if quick else (1, 3, 5)))


def spoken(summary: Summary, beams: Sequence[int]) -> list[Row]:
    """BLEU of the test split for each beam, also without `a`, which some publications leave out; some captions."""
    trained = load_trained(Path(summary.run))
    references = trained.workload.references["test"]
    people = list(references.values())
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    rows: list[Row] = []
    for beam in beams:
        names = list(references)
        answers = trained.workload.respond_to_all(trained.model, names, beam=beam)
        told = dict(zip(names, answers, strict=True))
        said = list(told.values())
        rows.append(
            {
                "beam": beam,
                **{f"test {name}": value for name, value in bleu_of_texts(said, people).items()},
                "test BLEU-1 without a": bleu_of_texts(said, people, ignored=letters)["BLEU-1"],
                "captions": {name: told[name] for name in list(told)[:SHOWN_CAPTIONS]},
            }
        )
    return rows


@dataclass(frozen=True)
class Known:
    """A part of this benchmark."""

    make: Callable[[Sequence[int], bool], Part]
    seeds: int
    """How many, unless others are asked for."""
    takes: str
    """On two cores without other work."""


PARTS = {
    "lenet5": Known(lenet5, 3, "50 minutes"),
    "nielsen": Known(nielsen, 2, "15 minutes"),
    "cifar10": Known(cifar10, 2, "55 minutes"),
    "keras": Known(keras, 1, "20 minutes"),
    "resnet34": Known(resnet34, 1, "7 minutes"),
    "captions": Known(captions, 2, "45 minutes"),
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        epilog="times, estimated from single steps: "
        + "; ".join(f"{name} {known.takes} ({known.seeds} seeds)" for name, known in PARTS.items()),
    )
    parser.add_argument("parts", nargs="*", metavar="part", help=f"{', '.join(PARTS)}, or all")
    parser.add_argument("--seeds", nargs="+", type=int, help="instead of those that a part has by default: 0, 1, ...")
    parser.add_argument("--quick", action="store_true", help="a few steps of each run, one seed; saved elsewhere")
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier, stopped benchmark has measured")
    parser.add_argument("--list", action="store_true", help="only tell which runs there are, and which are done")
    parser.add_argument("--page", action="store_true", help="only write docs/results/theses.md, from the result files")
    options = parser.parse_args()
    strange = [name for name in options.parts if name not in (*PARTS, "all")]
    if strange or not (options.parts or options.page):
        parser.error(f"name parts to run: {', '.join(PARTS)}, or all" + (f"; not {strange[0]!r}" if strange else ""))
    return options


def main() -> None:
    options = parse()
    if options.page:
        thesis_page.write_page()
        return
    names = list(PARTS) if "all" in options.parts else list(dict.fromkeys(options.parts))
    parts = {name: part_of(name, options) for name in names}
    kept = {name: kept_rows(name, options) for name in names}
    if options.list:
        for name, part in parts.items():
            for cell in part.cells:
                print(f"{name}: {cell.title}: {'to do' if kept[name].of(cell) is None else 'done'}")
        return
    if not os.environ.get("MINGA_DATA"):
        sys.exit("set MINGA_DATA to the folder with the data sets (docs/data.md)")
    try:
        with progress_over(sum(len(part.cells) for part in parts.values())) as advance:
            for name, part in parts.items():
                for rows in measure(part, kept[name], contest.SCRATCH / "theses", advance):
                    save(name, part, rows, options)
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on with what is left")
    except MingaError as error:
        sys.exit(f"error: {error}")
    if not options.quick:
        thesis_page.write_page()
    for name, part in parts.items():
        harness.show(shown([row for cell in part.cells for row in kept[name].of(cell) or []]), part.title)


def part_of(name: str, options: argparse.Namespace) -> Part:
    seeds = options.seeds or range(1 if options.quick else PARTS[name].seeds)
    return PARTS[name].make(seeds, options.quick)


def kept_rows(name: str, options: argparse.Namespace) -> KeptRows:
    folder = contest.SCRATCH if options.quick else harness.RESULTS
    return KeptRows(folder / f"theses_{name}_runs.jsonl", fresh=options.fresh and not options.list)


def save(name: str, part: Part, rows: Sequence[Row], options: argparse.Namespace) -> None:
    note = part.title + ("; quick: a few steps, nothing to conclude from" if options.quick else "")
    folder = contest.SCRATCH if options.quick else harness.RESULTS
    harness.write(f"theses_{name}", rows, note, script="theses", folder=folder)


HIDDEN = ("seed", "captions", "steps", "MB sent", "batch of all nodes", "samples/s")
"""What the result file has and the printed table, for its width, has not."""


def shown(rows: Sequence[Row]) -> list[Row]:
    """Medians over seeds of what is measured, with the number of runs; without names that all share."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        kind = [row.get(key) for key in ("workload", "strategy", "nodes", "beam")]
        groups.setdefault(str(kind), []).append(row)
    middles = [{key: _middle(group, key) for key in group[0] if key not in HIDDEN} for group in groups.values()]
    same = {key for key in ("workload", "Mbit/s", "epochs") if len({str(row[key]) for row in middles}) == 1}
    return [
        {**{key: value for key, value in row.items() if key not in same}, "runs": len(group)}
        for row, group in zip(middles, groups.values(), strict=True)
    ]


def _middle(rows: Sequence[Row], key: str) -> Any:
    values = [row[key] for row in rows]
    return statistics.median(values) if all(isinstance(value, float) for value in values) else values[0]


if __name__ == "__main__":
    main()
