"""Whether the built-in workloads wait for their data: what training needs beside what reading gives.

    MINGA_DATA=DIR python benchmarks/reading_keeps_up.py            # three minutes; what DIR lacks is left out

Three times in turns: the same steps are computed with one batch that is never read again (what training needs), their
samples are read in training's order and nothing is computed (what the reader gives), and both are done, as in training.
One thread computes, as on a node with one core.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import harness
import recipes
import torch
from reading_rates import read_only, row_of, train_on
from rich.console import Console
from rich.progress import track

from minga import PreparedDataset, Workload
from minga.data.directory import data_directory
from minga.data.formats import origin_of_known, origin_of_path
from minga.data.formats.base import PictureShape
from minga.data.preparing.prepare import Recipe, prepare
from minga.data.sources import known_dataset
from minga.errors import DataError
from minga.workloads import built_in

REPETITIONS = 3
STEPS = {  # some seconds of each; batches of those whose steps are long are small
    "digits": (200, 32),
    "mnist-mlp": (400, 64),
    "mnist-lenet5": (150, 64),
    "mnist-nielsen": (400, 10),
    "mnist-resnet": (20, 64),
    "cifar10-vgg": (4, 16),
    "flickr8k-captions": (20, 64),
    "shakespeare": (40, 32),
    "shakespeare-gpt": (8, 16),
}


def workloads(place: Path) -> dict[str, tuple[Callable[[], Workload], int, int]]:
    """What makes each, with its steps and batch: as they come, and two once more from prepared sets."""
    known = {name: (lambda name=name: built_in(name, None), *amount) for name, amount in STEPS.items()}
    return {
        **known,
        "mnist-lenet5, prepared": (lambda: prepared_mnist(place), *STEPS["mnist-lenet5"]),
        "fish-resnet34, PNG files": (recipes.pictures_in_folders, 4, 8),
        "fish-resnet34, prepared": (lambda: prepared_pictures(place), 4, 8),
    }


def prepared_mnist(place: Path) -> Workload:
    prepare(origin_of_known(known_dataset("mnist"), data_directory(None)), place / "mnist", Recipe(normalise=True))
    return dataclasses.replace(built_in("mnist-lenet5", None), train=PreparedDataset(place / "mnist", "train"))


def prepared_pictures(place: Path) -> Workload:
    small = PictureShape(width=197, height=148, grey=True)
    origin = dataclasses.replace(origin_of_path(recipes.folder_of_pictures(None, each=60)), picture=small)
    prepare(origin, place / "pictures", Recipe(split=(0.85, 0.02, 0.13)))
    return built_in("fish-resnet34", place / "pictures")


def measured(name: str, workload: Workload, steps: int) -> dict[str, Any]:
    train_on(workload, max(2, steps // 5))  # warm up
    rounds = [
        {
            "need": train_on(workload, steps, one_batch=True),
            "read": read_only(workload, steps),
            "train": train_on(workload, steps),
        }
        for _ in range(REPETITIONS)
    ]
    middle = {mode: {**found, **medians([each[mode] for each in rounds])} for mode, found in rounds[-1].items()}
    return {**row_of(name, middle), "batch": workload.batch, "repetitions": REPETITIONS}


def medians(found: Sequence[dict[str, Any]]) -> dict[str, float]:
    measured = [key for key in ("samples per second", "waiting for data") if key in found[0]]
    return {key: statistics.median(each[key] for each in found) for key in measured}


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        known = workloads(Path(folder))
        for name in track(list(known), console=Console(stderr=True), transient=True):
            make, steps, batch = known[name]
            try:
                workload = dataclasses.replace(make(), test=None, batch=batch)
            except DataError as error:
                print(f"without {name}: {error}", file=sys.stderr)
                continue
            rows.append(measured(name, workload, steps))
    if not rows:
        sys.exit("no data set is here; set MINGA_DATA to the folder that has them (docs/data.md)")
    harness.save("reading_keeps_up", rows, "reading against what training needs, one thread that computes")


if __name__ == "__main__":
    main()
