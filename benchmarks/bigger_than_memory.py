"""Training on four times as much data as there is memory, and whether reading keeps up with training.

python benchmarks/bigger_than_memory.py                              # needs root, for a control group
python benchmarks/bigger_than_memory.py --limit-megabytes 800 --json

A prepared set of four times the limit is written and dropped from the system's memory; then, in a control group that
has no more than the limit, (1) it is read in training's order and nothing is computed, (2) the same steps are computed
with one batch that is never read again: what training needs, (3) it is trained on. As a check of the limit, the group's
kernel must end a process that wants all of the data in memory. Then the same three for built-in networks on a prepared
MNIST, if MINGA_DATA has it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness
import numpy as np
import torch
from torch import nn

from minga.comm.threads import ThreadWorld
from minga.data.directory import data_directory
from minga.data.prepared.dataset import PreparedDataset
from minga.data.prepared.manifest import Manifest, Part, Shard, Shuffle
from minga.data.prepared.shard_file import Field, ShardLayout
from minga.data.preparing.prepare import prepare
from minga.data.preparing.recipe import Recipe
from minga.data.readers import origin_of_known
from minga.data.sources import known_dataset
from minga.errors import DataError
from minga.experiment import Experiment, Training
from minga.measure.recorder import Recorder
from minga.strategies import Single
from minga.train import train
from minga.trainee import Trainee, build_trainee
from minga.workload import Workload
from minga.workloads.models import LeNet5, SmallConvNet, SmallResNet

TIMES = 4
SIDE = 96
BATCH = 64
SHARD_BYTES = 64 << 20
MNIST_STEPS = 60
REPETITIONS = 3
FITS_NOT = "everything in memory"
NETWORKS = {"mnist LeNet-5": LeNet5, "mnist CNN": SmallConvNet, "mnist ResNet": SmallResNet}


class Net(nn.Sequential):
    """Small enough that reading is a good part of the work: 29,000 parameters."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 16, 5, stride=4),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(5),
            nn.Flatten(),
            nn.Linear(800, 30),
            nn.ReLU(),
            nn.Linear(30, 10),
        )


def write_set(folder: Path, nbytes: int) -> None:
    """Pictures of noise with a bright patch whose place is the class; a test part of 1,000."""
    random = np.random.default_rng(0)
    fields = {"inputs": Field("uint8", (3, SIDE, SIDE)), "targets": Field("int64", ())}
    per_shard = SHARD_BYTES // (3 * SIDE * SIDE)
    parts = {}
    for part, samples in (("train", nbytes // (3 * SIDE * SIDE) + 1), ("test", 1000)):
        shards = []
        for number, start in enumerate(range(0, samples, per_shard)):
            layout = ShardLayout.of(fields, min(per_shard, samples - start))
            targets = random.integers(0, 10, layout.samples)
            pictures = random.integers(0, 256, (layout.samples, 3, SIDE, SIDE), dtype=np.uint8)
            for label in range(10):
                row, column = 24 * (label // 4), 24 * (label % 4)
                pictures[targets == label, :, row : row + 24, column : column + 24] = 255
            name = f"{part}-{number:05d}.safetensors"
            with (folder / name).open("wb") as file:
                file.write(layout.header + targets.astype(np.int64).tobytes())
                file.write(pictures.tobytes())
                file.flush()
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            shards.append(Shard(file=name, samples=layout.samples, bytes=layout.size, sha256=""))
        parts[part] = Part(samples=samples, classes={}, shards=tuple(shards))
    shuffle = Shuffle(block=(1 << 20) // (3 * SIDE * SIDE), window=64)
    manifest = Manifest(name="noise", fields=fields, parts=parts, scale=1 / 255, shuffle=shuffle)
    (folder / "manifest.json").write_text(manifest.to_json())


@contextlib.contextmanager
def memory_group(limit: int) -> Iterator[Path]:
    """A control group of either version that has so many bytes, page cache included."""
    top = Path("/sys/fs/cgroup")
    second = (top / "cgroup.controllers").exists()
    group = (top if second else top / "memory") / f"minga-memory-{os.getpid()}"
    try:
        if second:
            (top / "cgroup.subtree_control").write_text("+memory")
        group.mkdir()
        (group / ("memory.max" if second else "memory.limit_in_bytes")).write_text(str(limit))
        with contextlib.suppress(OSError):  # no swapping out either, where it can be said
            (group / ("memory.swap.max" if second else "memory.swappiness")).write_text("0")
    except OSError as error:
        sys.exit(f"no control group for memory can be made here: {error}")
    try:
        yield group
    finally:
        deadline = time.monotonic() + 5
        while group.exists() and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                group.rmdir()
            time.sleep(0.05)


def peak_bytes(group: Path) -> int:
    for name in ("memory.peak", "memory.max_usage_in_bytes"):
        with contextlib.suppress(OSError):
            return int((group / name).read_text())
    return 0


def in_group(group: Path, mode: str, folder: Path) -> tuple[int, dict[str, Any]]:
    """Run one mode of this script in the group, with nothing of the data in memory; exit code and what it found."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    command = [sys.executable, __file__, "--child", mode, "--folder", str(folder)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())),
    )
    if done.returncode > 0:
        sys.exit(done.stderr)
    if done.returncode < 0 and mode != FITS_NOT:
        sys.exit(f"{mode!r} was ended by signal {-done.returncode} in its control group; give more --limit-megabytes")
    return done.returncode, json.loads(done.stdout) if done.returncode == 0 else {}


# --- in the group --------------------------------------------------------------------------------------------------


def trainee_of(workload: Workload, steps: int | None) -> tuple[Experiment, Trainee]:
    training = Training(steps=steps, epochs=None if steps else 1, evaluate_every=0)
    experiment = Experiment(workload=workload.name, strategy=Single(), training=training)
    return experiment, build_trainee(experiment, workload, 0)


def read_only(workload: Workload, steps: int | None) -> dict[str, Any]:
    """Samples per second of reading in training's order, with nothing else to do."""
    _, trainee = trainee_of(workload, steps)
    trainee.begin(0, 1, {})
    samples, began = 0, time.perf_counter()
    for _ in range(steps or 1 << 60):
        share = trainee.order.take(0, 1, trainee.batch)
        trainee.fetch(share)
        samples += len(share.indices)
        if trainee.order.epoch:
            break
    return {"samples per second": samples / (time.perf_counter() - began), "samples": samples}


def train_on(workload: Workload, steps: int | None, *, one_batch: bool = False) -> dict[str, Any]:
    """Samples per second of training, and the part of the time that it waited for data."""
    # Trained without the test part, which would be evaluated within the time.
    experiment, trainee = trainee_of(dataclasses.replace(workload, test=None), steps)
    fetch, waited, samples = trainee.fetch, 0.0, 0
    kept: list[Any] = []

    def timed(share: Any) -> Any:
        nonlocal waited, samples
        samples += len(share.indices)
        began = time.perf_counter()
        if not one_batch or not kept:
            kept[:] = [fetch(share)]
        waited += time.perf_counter() - began
        return kept[0]

    trainee.fetch = timed  # type: ignore[method-assign]
    read_before = read_from_disk()
    began = time.perf_counter()
    train(experiment, trainee, ThreadWorld(1).transport(0), Recorder(None))
    seconds = time.perf_counter() - began
    ahead = trainee.ahead
    disk = read_from_disk() - read_before
    trainee.workload = workload
    tested = workload.test is not None and not one_batch
    metrics = trainee.evaluate(ThreadWorld(1).transport(0)).numbers if tested else {}
    return {
        "samples per second": samples / seconds,
        "samples": samples,
        "waiting for data": waited / seconds,
        "accuracy": metrics.get("accuracy"),
        "disk MB": disk / 1e6,
        "resident MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "read ahead": None if ahead is None else ahead.hits / max(1, ahead.hits + ahead.misses),
    }


def read_from_disk() -> float:
    """Bytes that this process has caused to be read from a disk."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("read_bytes")))


def noise(folder: Path) -> Workload:
    train_part, test_part = PreparedDataset(folder, "train"), PreparedDataset(folder, "test")
    return Workload(name="noise", model=Net, train=train_part, test=test_part, batch=BATCH, optimizer=torch.optim.Adam)


def child(mode: str, folder: Path) -> None:
    torch.set_num_threads(1)
    workload = noise(folder)
    if mode == FITS_NOT:
        dataset = workload.train
        assert isinstance(dataset, PreparedDataset)
        kept = [dataset.raw(torch.arange(at, min(at + 1000, len(dataset)))) for at in range(0, len(dataset), 1000)]
        print(json.dumps({"samples": len(kept)}))
        return
    without_test = dataclasses.replace(workload, test=None)
    found = {
        "read": lambda: read_only(workload, None),
        "need": lambda: train_on(without_test, 200, one_batch=True),
        "train": lambda: train_on(workload, None),
    }[mode]()
    print(json.dumps(found))


# --- outside -------------------------------------------------------------------------------------------------------


def large(limit: int, place: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=place) as name:
        folder = Path(name)
        write_set(folder, TIMES * limit)
        with memory_group(limit) as group:
            code, _ = in_group(group, FITS_NOT, folder)
        with memory_group(limit) as group:
            found = {mode: in_group(group, mode, folder)[1] for mode in ("need", "read", "train")}
            peak = peak_bytes(group)
        nbytes = sum(path.stat().st_size for path in folder.iterdir())
        return {
            **row_of(f"{TIMES} x memory", found),
            "data MB": nbytes / 1e6,
            "read from disk / data": found["train"]["disk MB"] * 1e6 / nbytes,
            "limit MB": limit / 1e6,
            "peak MB": peak / 1e6,
            "resident MB": found["train"]["resident MB"],
            "in memory": "killed" if code < 0 else "fits",
        }


def row_of(name: str, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    need, read, trained = (found[mode]["samples per second"] for mode in ("need", "read", "train"))
    return {
        "workload": name,
        "training needs, samples/s": round(need),
        "reader gives, samples/s": round(read),
        "reader / need": read / need,
        "trained, samples/s": round(trained),
        "waiting for data": found["train"]["waiting for data"],
        "samples": found["train"]["samples"],
        "accuracy": found["train"]["accuracy"] or 0.0,
    }


def built_in(place: Path) -> list[dict[str, Any]]:
    try:
        origin = origin_of_known(known_dataset("mnist"), data_directory(None))
    except DataError as error:
        print(f"without built-in workloads: {error}", file=sys.stderr)
        return []
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory(dir=place) as name:
        prepare(origin, Path(name) / "mnist", Recipe(normalise=True))
        train_part, test_part = (PreparedDataset(Path(name) / "mnist", part) for part in ("train", "test"))
        for title, network in NETWORKS.items():
            workload = Workload(name="mnist", model=network, train=train_part, test=test_part, batch=BATCH)
            without_test = dataclasses.replace(workload, test=None)
            train_on(without_test, 20)  # warm up
            # Side by side, so that whatever else the machine does meets all of them.
            rounds = [
                {
                    "need": train_on(without_test, MNIST_STEPS, one_batch=True),
                    "read": read_only(workload, MNIST_STEPS),
                    "train": train_on(workload if last else without_test, MNIST_STEPS),
                }
                for last in (False,) * (REPETITIONS - 1) + (True,)
            ]
            found = rounds[-1]
            for mode in found:
                found[mode]["samples per second"] = statistics.median(
                    each[mode]["samples per second"] for each in rounds
                )
            data = {
                "data MB": 55.0,
                "read from disk / data": "",
                "limit MB": "none",
                "peak MB": "",
                "resident MB": "",
                "in memory": "fits",
            }
            rows.append({**row_of(title, found), **data})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit-megabytes", type=int, default=600)
    parser.add_argument("--place", type=Path, default=Path(tempfile.gettempdir()), help="a disk with room, no tmpfs")
    parser.add_argument("--json", action="store_true", help="print one row, and write no result file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # control groups don't go away by themselves
    if asked.child is not None:
        child(asked.child, asked.folder)
        return
    row = large(asked.limit_megabytes << 20, asked.place)
    if asked.json:
        print(json.dumps(row))
        return
    note = "reading against what training needs, one thread that computes, batch 64; the first row in a control group"
    harness.save("bigger_than_memory", [row, *built_in(asked.place)], note)


if __name__ == "__main__":
    main()
