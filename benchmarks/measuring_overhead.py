"""What measuring costs: training with everything on (events, spans, meters) against the same loop without any of it.

    python benchmarks/measuring_overhead.py

Differences of a percent drown in what else a machine does. So one training goes on in turns of 20 ms, with measuring
and without: whatever disturbs the ones disturbs the others as much, and medians forget it. A turn is too short for what
happens only now and then; what it costs is therefore measured by itself and added: turning the events of 0.2 s into
text and writing them, and the samples of the meters.
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
import problems
import torch

from minga import Experiment, Training, Workload
from minga.comm.threads import ThreadWorld
from minga.comm.traced import TracedTransport
from minga.measure.events import Stepped
from minga.measure.meter import Meter, Metering
from minga.measure.recorder import Recorder
from minga.measure.spans import NO_SPANS
from minga.runs.experiment import Measuring
from minga.strategies import Single
from minga.training.loop import train
from minga.training.train_state import build_train_state
from minga.workloads.digits import digits

REPETITIONS = 15
TURNS = 60
WARM_UP = 2
"""Steps of a turn that are not timed: starting a meter leaves the caches to others."""
INTERVAL_SECONDS = 0.5
WORKLOADS: dict[str, tuple[Callable[[], Workload], int]] = {
    "LeNet-5": (lambda: problems.workload("LeNet-5"), 2),
    "digits": (digits, 10),
}
"""Each with the steps of a turn: about 20 ms."""


Seconds = dict[str, list[float]]


class Clock:
    """Times the steps of a turn: the loop asks the workload's schedule once in each, at its beginning."""

    def __init__(self, workload: Workload) -> None:
        self._schedule = workload.schedule

    def begin(self, steps: int) -> None:
        self._steps = steps
        self._left = WARM_UP + steps
        self._first: tuple[float, float] | None = None
        self._last = (0.0, 0.0)

    def __call__(self, progress: float) -> float:
        self._last = time.perf_counter(), time.thread_time()
        if self._left == self._steps:
            self._first = self._last
        self._left -= 1
        return self._schedule(progress) if self._schedule is not None else 1.0

    def seconds(self) -> tuple[float, float]:
        """By the wall's clock and by the processor's, from the first step's beginning to the last one's."""
        assert self._first is not None
        return self._last[0] - self._first[0], self._last[1] - self._first[1]


def repetition(make: Callable[[], Workload], steps: int) -> tuple[Seconds, Seconds]:
    """Seconds of each turn with and without measuring, by the wall's clock and by the processor's."""
    workload = make()
    clock = Clock(workload)
    workload = dataclasses.replace(workload, test=None, schedule=clock)
    measuring = Measuring(interval_seconds=INTERVAL_SECONDS)
    training = Training(steps=1, evaluate_every=0)
    experiments = {
        "on": Experiment(workload=workload.name, strategy=Single(), training=training, measuring=measuring),
        "off": Experiment(workload=workload.name, strategy=Single(), training=training),
    }
    wall: Seconds = {"on": [], "off": []}
    cpu: Seconds = {"on": [], "off": []}
    with tempfile.TemporaryDirectory() as folder:
        recorders = {"on": Recorder(Path(folder) / "events.jsonl"), "off": Recorder(None)}
        recorders["off"].spans = NO_SPANS
        train_state = build_train_state(experiments["on"], workload, 0)
        for turn in range(TURNS):
            for name in ("on", "off") if turn % 2 else ("off", "on"):
                recorder = recorders[name]
                train_state.replica.spans = spans = recorder.spans
                # The same model goes on: another one would lie elsewhere in memory, and be faster or slower for that.
                train_state.steps = train_state.replica.step + WARM_UP + steps + 1
                comm = TracedTransport(
                    ThreadWorld(1).transport(0), recorder.traffic, waiting=lambda spans=spans: spans.span("wait")
                )
                clock.begin(steps)
                train(experiments[name], train_state, comm, recorder)
                for kept, seconds in zip((wall, cpu), clock.seconds(), strict=True):
                    kept[name].append(seconds)
        recorders["on"].close()

    return wall, cpu


def writing_seconds(step_seconds: float) -> float:
    """CPU time for each step's share of writing what has gathered in 0.2 s, with caches that a model has emptied."""
    gathered = max(1, round(0.2 / step_seconds))
    spans = {"data": 1.2e-4, "forward": 4.2e-4, "backward": 6.3e-4, "exchange": 1.1e-5, "update": 1.4e-4}
    much = torch.ones(4_000_000)
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder) / "events.jsonl")
        for turn in range(100):
            for step in range(gathered):
                recorder.emit(
                    Stepped(
                        time=1234.5 + step,
                        step=step,
                        progress=step / 1003,
                        epoch=step / 77,
                        loss=0.1 + 1 / (turn + 3),
                        samples=16,
                        seconds=dict(spans),
                        bytes_sent=0,
                        messages_sent=0,
                    )
                )
            much.add_(1)
            began = time.thread_time()
            recorder.flush()
            seconds.append((time.thread_time() - began) / gathered)
        recorder.close()
    return statistics.median(seconds)


def sampling_share() -> float:
    """CPU time for a second's samples of the meters, in a lab, where interfaces are read too."""
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder) / "events.jsonl")
        meter = Meter(recorder.emit, Metering(interval_seconds=INTERVAL_SECONDS, alone_on_host=True))
        meter.resume()
        began = time.process_time()
        for _ in range(1000):
            meter._sample()
            recorder.flush()
        seconds = (time.process_time() - began) / 1000
        recorder.close()
    return seconds / INTERVAL_SECONDS


def main() -> None:
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    sampling = sampling_share()
    rows: list[dict[str, Any]] = []
    for name, (make, steps) in WORKLOADS.items():
        repetition(make, steps)  # to warm up
        pairs = [repetition(make, steps) for _ in range(REPETITIONS)]
        without = statistics.median(seconds for _, cpu in pairs for seconds in cpu["off"]) / steps
        writing = writing_seconds(without)
        added = sampling + writing / without
        wall = sorted(harness.median_ratio(wall, "on", "off") + added for wall, _ in pairs)
        cpu = sorted(harness.median_ratio(cpu, "on", "off") + added for _, cpu in pairs)
        rows.append(
            {
                "model": name,
                "without, CPU ms per step": 1000 * without,
                "of this writing, µs per step": 1e6 * writing,
                "of this samples, share": sampling,
                "time ratio": statistics.median(wall),
                "CPU time ratio": statistics.median(cpu),
                "lower quartile": cpu[len(cpu) // 4],
                "upper quartile": cpu[-1 - len(cpu) // 4],
                "repetitions": REPETITIONS,
            }
        )
    note = f"everything measured (meters every {INTERVAL_SECONDS} s) against nothing (1 rank, 1 thread, medians)"
    harness.save("measuring_overhead", rows, note)


if __name__ == "__main__":
    main()
