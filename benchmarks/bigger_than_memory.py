"""Training on four times as much data as there is memory, and whether reading keeps up with training.

python benchmarks/bigger_than_memory.py                              # needs root, for a control group
python benchmarks/bigger_than_memory.py --limit-megabytes 800 --json

A prepared set of four times the limit is written and dropped from the system's memory; then, in a control group that
has no more than the limit, (1) it is read in training's order and nothing is computed, (2) the same steps are computed
with one batch that is never read again: what training needs, (3) it is trained on. As a check of the limit, the group's
kernel must end a process that wants all of the data in memory. `reading_keeps_up.py` is the same for what is built in.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import signal
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
from reading_rates import read_only, row_of, train_on
from torch import nn

from minga.data.prepared.dataset import PreparedDataset
from minga.data.prepared.manifest import PreparedManifest, PreparedPart, ShardFile, Shuffle
from minga.data.prepared.shard_file import Field, ShardLayout
from minga.runs.workload import Workload

TIMES = 4
SIDE = 96
BATCH = 64
SHARD_BYTES = 64 << 20
FITS_NOT = "everything in memory"


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
            shards.append(ShardFile(file=name, samples=layout.samples, bytes=layout.size, sha256=""))
        parts[part] = PreparedPart(samples=samples, classes={}, shards=tuple(shards))
    shuffle = Shuffle(block=(1 << 20) // (3 * SIDE * SIDE), window=64)
    manifest = PreparedManifest(name="noise", fields=fields, parts=parts, scale=1 / 255, shuffle=shuffle)
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


def noise(folder: Path) -> Workload:
    train_part, test_part = PreparedDataset(folder, "train"), PreparedDataset(folder, "test")
    return Workload(name="noise", model=Net, train=train_part, test=test_part, batch=BATCH, optimizer=torch.optim.Adam)


def child(mode: str, folder: Path) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # a batch that is learnt by heart leaves tiny gradients, which are slow
    workload = noise(folder)
    if mode == FITS_NOT:
        dataset = workload.train
        assert isinstance(dataset, PreparedDataset)
        kept = [dataset.raw(torch.arange(at, min(at + 1000, len(dataset)))) for at in range(0, len(dataset), 1000)]
        print(json.dumps({"samples": len(kept)}))
        return
    without_test = dataclasses.replace(workload, test=None)
    train_on(without_test, 20, one_batch=True)  # the first steps of a process take longer
    found = {
        "read": lambda: read_only(workload, None),
        "need": lambda: train_on(without_test, 400, one_batch=True),
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
            "accuracy": found["train"]["accuracy"],
            "data MB": nbytes / 1e6,
            "read from disk / data": found["train"]["disk MB"] * 1e6 / nbytes,
            "limit MB": limit / 1e6,
            "peak MB": peak / 1e6,
            "resident MB": found["train"]["resident MB"],
            "in memory": "killed" if code < 0 else "fits",
        }


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
    harness.save("bigger_than_memory", [row], "reading against what training needs, in a control group; batch 64")


if __name__ == "__main__":
    main()
