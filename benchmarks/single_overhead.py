"""What Minga costs on one node: `single` against a loop written by hand, side by side.

python benchmarks/single_overhead.py
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import harness
import problems
import torch
from torch.utils.data import TensorDataset

from minga import Experiment, Training
from minga.comm.threads import ThreadWorld
from minga.comm.traced import TracedTransport
from minga.measure.recorder import Recorder
from minga.strategies import Single
from minga.training.loop import train
from minga.training.train_state import build_train_state

REPETITIONS = 25


def minga_loop(name: str) -> float:
    """The real loop with its measuring and its event file."""
    workload = problems.workload(name)
    steps = problems.STEPS[name]
    experiment = Experiment(workload=name, strategy=Single(), training=Training(steps=steps))
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder) / "events.jsonl")
        train_state = build_train_state(experiment, workload, 0, recorder.spans)
        spans = recorder.spans
        comm = TracedTransport(ThreadWorld(1).transport(0), recorder.traffic, waiting=lambda: spans.span("wait"))
        began = time.perf_counter()
        train(experiment, train_state, comm, recorder)
        seconds = time.perf_counter() - began
        recorder.close()
    return seconds


def hand_written_loop(name: str) -> float:
    workload = problems.workload(name)
    torch.manual_seed(0)
    model = workload.model()
    optimizer = problems.make_optimizer(model.parameters())
    assert isinstance(workload.train, TensorDataset)
    pictures, classes = workload.train.tensors
    generator = torch.Generator().manual_seed(0)
    began = time.perf_counter()
    order = torch.randperm(len(pictures), generator=generator)
    batch = problems.BATCH[name]
    for step in range(problems.STEPS[name]):
        indices = order[step * batch % len(pictures) :][:batch]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(pictures[indices]), classes[indices])
        loss.backward()
        optimizer.step()
    return time.perf_counter() - began


def main() -> None:
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for name in problems.MODELS:
        seconds = harness.alternate(
            {"minga": lambda name=name: minga_loop(name), "by hand": lambda name=name: hand_written_loop(name)},
            REPETITIONS,
        )
        steps = problems.STEPS[name]
        rows.append(
            {
                "model": name,
                "minga, ms per step": 1000 * statistics.median(seconds["minga"]) / steps,
                "by hand, ms per step": 1000 * statistics.median(seconds["by hand"]) / steps,
                "time ratio": harness.median_ratio(seconds, "minga", "by hand"),
                "repetitions": REPETITIONS,
            }
        )
    harness.save("single_overhead", rows, "one node: Minga's loop against one written by hand (1 thread, medians)")


if __name__ == "__main__":
    main()
