"""What a server's log costs: what it adds to each update, before the answer and after it, and the time of coming back.

python benchmarks/server_log.py

A server with and one without a log apply the same updates in turns, on one core.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import harness
import torch
from torch import nn

from minga.model.replica import Replica
from minga.strategies.parameter_server.disk_log import DiskUpdateLog
from minga.strategies.parameter_server.shard import Push, Shard, Update
from minga.strategies.parameter_server.update_log import Period, UpdateLog

SIZES = {"10 K": (100, 100), "420 K": (600, 700), "4.2 M": (2048, 2048)}
UPDATES = 40
REPETITIONS = 7
PERIOD = Period(1, 0, {"epoch": 0, "offset": 0, "samples": 1, "owed": []}, ("worker",))


def make_shard(size: tuple[int, int]) -> Shard:
    torch.manual_seed(0)
    model = nn.Linear(*size, bias=False)
    replica = Replica(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    return Shard(replica, slice(0, replica.layout.length))


class Contestant:
    """A server that applies updates."""

    def __init__(self, size: tuple[int, int], update_log: UpdateLog) -> None:
        self.update_log = update_log
        self.shard = make_shard(size)
        self._number = 0
        update_log.begin(self.shard, PERIOD)

    def run(self) -> float:
        """Seconds of an update, in the mean."""
        began = time.perf_counter()
        for _ in range(UPDATES):
            self._number += 1
            push = Push("worker", self._number, self._number, 1.0)
            update = Update((push,), (0.1,), (self.shard.gradients,), together=True)
            self.update_log.append(self.shard, update)
            self.shard.apply(update)
            self.update_log.applied()
            self.update_log.tidy_up(self.shard)
        return (time.perf_counter() - began) / UPDATES


def measure(name: str, size: tuple[int, int], folder: Path) -> dict[str, Any]:
    without = Contestant(size, UpdateLog())
    logged = DiskUpdateLog(folder / name)
    with_log = Contestant(size, logged)
    seconds = harness.alternate({"without": without.run, "with": with_log.run}, REPETITIONS, quiet=True)
    costs = logged.costs()
    logged.close()
    nbytes = sum(path.stat().st_size for path in (folder / name).iterdir())
    began = time.perf_counter()
    assert DiskUpdateLog(folder / name).restore(make_shard(size))
    restoring = time.perf_counter() - began
    added = [a - b for a, b in zip(seconds["with"], seconds["without"], strict=True)]
    return {
        "parameters": name,
        "update, ms": 1000 * statistics.median(seconds["without"]),
        "log adds, ms": 1000 * statistics.median(added),
        "lowest": 1000 * min(added),
        "highest": 1000 * max(added),
        # In the mean of all updates, also of the first ones, whose files are new.
        "before the answer, ms": 1000 * costs["seconds"] / costs["updates"],
        "snapshots": int(costs["snapshots"]),
        "a snapshot, ms": 1000 * costs["snapshot_seconds"] / max(1, costs["snapshots"]),
        "MB on disk": nbytes / 1e6,
        "coming back, s": restoring,
        "repetitions": REPETITIONS,
    }


def main() -> None:
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory(prefix="minga-server-log-") as folder:
        rows = [measure(name, size, Path(folder)) for name, size in SIZES.items()]
    harness.save("server_log", rows, "a server with SGD and momentum, one worker's gradients at a time, on one core")


if __name__ == "__main__":
    main()
