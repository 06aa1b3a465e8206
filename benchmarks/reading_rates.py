"""How fast samples are read, and how fast training needs them: the same steps, with one of the two left out.

    read_only(workload, steps=60); train_on(workload, steps=60, one_batch=True); train_on(workload, steps=60)

Used by `bigger_than_memory.py` and `reading_keeps_up.py`.
"""

from __future__ import annotations

import dataclasses
import resource
import time
from pathlib import Path
from typing import Any

from minga.comm.threads import ThreadWorld
from minga.measure.recorder import Recorder
from minga.runs.experiment import Experiment, Training
from minga.runs.workload import Workload
from minga.strategies import Single
from minga.training.loop import train
from minga.training.train_state import TrainState, build_train_state


def trainee_of(workload: Workload, steps: int | None) -> tuple[Experiment, TrainState]:
    training = Training(steps=steps, epochs=None if steps else 1, evaluate_every=0)
    experiment = Experiment(workload=workload.name, strategy=Single(), training=training)
    return experiment, build_train_state(experiment, workload, 0)


def read_only(workload: Workload, steps: int | None) -> dict[str, Any]:
    """Samples per second of reading in training's order, with nothing else to do."""
    _, train_state = trainee_of(workload, steps)
    train_state.begin(Single(), 0, 1)
    samples, began = 0, time.perf_counter()
    for _ in range(steps or 1 << 60):
        share = train_state.order.take(0, 1, train_state.batch)
        train_state.fetch(share)
        samples += len(share.indices)
        if train_state.order.epoch:
            break
    return {"samples per second": samples / (time.perf_counter() - began), "samples": samples}


def train_on(workload: Workload, steps: int | None, *, one_batch: bool = False) -> dict[str, Any]:
    """Samples per second of training, and the part of the time that it waited for data."""
    # Trained without the test part, which would be evaluated within the time.
    experiment, train_state = trainee_of(dataclasses.replace(workload, test=None), steps)
    fetch, waited, samples = train_state.fetch, 0.0, 0
    kept: list[Any] = []

    def timed(share: Any) -> Any:
        nonlocal waited, samples
        samples += len(share.indices)
        began = time.perf_counter()
        if not one_batch or not kept:
            kept[:] = [fetch(share)]
        waited += time.perf_counter() - began
        return kept[0]

    train_state.fetch = timed  # type: ignore[method-assign]
    read_before = read_from_disk()
    began = time.perf_counter()
    train(experiment, train_state, ThreadWorld(1).transport(0), Recorder(None))
    seconds = time.perf_counter() - began
    ahead = train_state.ahead
    disk = read_from_disk() - read_before
    train_state.workload = workload
    tested = workload.test is not None and not one_batch
    metrics = train_state.evaluate(ThreadWorld(1).transport(0)).numbers if tested else {}
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
    }
