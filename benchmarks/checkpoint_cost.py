"""What checkpoints cost the training loop: the same training with and without, side by side, and the parts of the cost.

python benchmarks/checkpoint_cost.py

Turns with a checkpoint and turns without alternate on the same model. The cost of one checkpoint is the difference,
writing beside training included; relative to a minute of training it is what the default (one a minute) costs. The
cost of looking for numbers that are none is measured on the same vectors, as a part of a step.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness
import torch
from torch import nn
from torch.utils.data import TensorDataset

from minga.comm.threads import ThreadWorld
from minga.measure.recorder import Recorder
from minga.model.non_finite import all_finite
from minga.runs.experiment import Checkpoints, Experiment, Training
from minga.runs.workload import Workload
from minga.strategies import Single
from minga.training.checkpoints.manager import CheckpointManager
from minga.training.loop import train
from minga.training.train_state import TrainState, build_train_state
from minga.workloads.digits import digits

TURNS = 20
REPETITIONS = 5
EVERY_SECONDS = 60.0


def wide() -> Workload:
    """4.2 million parameters with Adam: 50 MB in a checkpoint."""
    data = TensorDataset(torch.randn(640, 1024), torch.arange(640) % 10)

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 10))

    return Workload(name="wide", model=model, train=data, batch=32, optimizer=lambda p: torch.optim.Adam(p, lr=0.0001))


# Steps of a turn: long enough that the checkpoint of its middle is written before its end.
WORKLOADS: dict[str, tuple[Callable[[], Workload], int]] = {"digits": (digits, 200), "wide": (wide, 30)}


def turn(train_state: TrainState, folder: Path, steps: int, *, checkpoint: bool) -> float:
    """Seconds of so many steps, with a checkpoint on the way or with none; until it is written, at least."""
    # In the middle of a turn, and perhaps at its end: what is taken for the cost of one is at least that.
    settings = Checkpoints(every_steps=steps // 2 if checkpoint else 1 << 40, every_seconds=0, keep=1)
    train_state.steps = train_state.replica.step + steps
    experiment = Experiment(
        workload=train_state.workload.name, strategy=Single(), training=Training(steps=1, evaluate_every=0)
    )
    recorder = Recorder(None)
    checkpoints = CheckpointManager(folder, settings, train_state, recorder)
    began = time.perf_counter()
    train(experiment, train_state, ThreadWorld(1).transport(0), recorder, checkpoints)
    return time.perf_counter() - began


def cost(make: Callable[[], Workload], steps: int) -> dict[str, Any]:
    workload = dataclasses.replace(make(), test=None, schedule=None)
    experiment = Experiment(workload=workload.name, strategy=Single(), training=Training(steps=1))
    train_state = build_train_state(experiment, workload, 0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for checkpoint in (True, False):  # warm up
            turn(train_state, folder, steps, checkpoint=checkpoint)
        seconds = harness.alternate(
            {
                "with": lambda: turn(train_state, folder, steps, checkpoint=True),
                "without": lambda: turn(train_state, folder, steps, checkpoint=False),
            },
            TURNS,
            quiet=True,
        )
        written = sum(path.stat().st_size for path in folder.rglob("*.safetensors"))
        assert written, "no checkpoint was written, so nothing was measured"
    differences = [mine - theirs for mine, theirs in zip(seconds["with"], seconds["without"], strict=True)]
    return {
        "checkpoint": statistics.median(differences),
        "step": statistics.median(seconds["without"]) / steps,
        "bytes": written,
        "looking": looking_seconds(train_state),
    }


def looking_seconds(train_state: TrainState) -> float:
    """Of both looks at the gradients of a step, with caches that the model has emptied."""
    much, seconds = torch.ones(4_000_000), []
    for _ in range(100):
        much.add_(1)
        train_state.replica.gradients.mul_(1.0)  # as after backward
        began = time.perf_counter()
        all_finite(train_state.replica.gradients)
        all_finite(train_state.replica.gradients)
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def main() -> None:
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    rows = []
    for name, (make, steps) in WORKLOADS.items():
        measured = [cost(make, steps) for _ in range(REPETITIONS)]
        shares = sorted(each["checkpoint"] / EVERY_SECONDS for each in measured)
        rows.append(
            {
                "model": name,
                "MB": measured[0]["bytes"] / 1e6,
                "ms per step": 1000 * statistics.median(each["step"] for each in measured),
                "ms per checkpoint": 1000 * statistics.median(each["checkpoint"] for each in measured),
                "share at one a minute": statistics.median(shares),
                "lowest": shares[0],
                "highest": shares[-1],
                "looking for bad numbers, share of a step": statistics.median(
                    each["looking"] / each["step"] for each in measured
                ),
                "repetitions": REPETITIONS,
            }
        )
    note = "cost of a checkpoint on one core, training and writing together (1 rank, medians)"
    harness.save("checkpoint_cost", rows, note)


if __name__ == "__main__":
    main()
