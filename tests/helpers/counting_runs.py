"""Runs in whose model every sample is counted, to be disturbed from outside."""

from __future__ import annotations

import contextlib
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import torch
from safetensors.torch import load_file

from minga import Cluster, Experiment, Summary, Training, run
from minga.launch.listening import Listening
from minga.measure.event_reader import event_files, read_events
from minga.measure.events import RankRecovered, Stepped
from minga.runs.experiment import Checkpoints

__all__ = ["COUNTER", "EPOCHS", "SAMPLES", "STEPS", "TOTAL_BATCH", "Running", "recovery_seconds"]

SAMPLES, TOTAL_BATCH, EPOCHS = 600, 12, 3
STEPS = EPOCHS * SAMPLES // TOTAL_BATCH

# Its only parameters are a counter for each sample: whatever happens, each must be at EPOCHS in the end.
COUNTER = f"""
import os
import time
from functools import partial
from pathlib import Path
import torch
from torch import nn
import random
from torch.utils.data import IterableDataset, TensorDataset
from minga import Workload


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.counts = nn.Embedding({SAMPLES}, 1, dtype=torch.float64)
        nn.init.zeros_(self.counts.weight)

    def forward(self, inputs):
        hanging = Path(__file__).with_name("hanging")
        if hanging.exists() and hanging.read_text() == str(os.getpid()):
            time.sleep(1000)
        time.sleep(0.2 if Path(__file__).with_name("slowly").exists() else 0.02)
        return self.counts(inputs)


class Stream(IterableDataset):
    '''Nobody knows its length before its end, and each epoch has another order.'''

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        for number in random.Random(self.epoch).sample(range({SAMPLES}), {SAMPLES}):
            yield number, 0.0


class Normalised(Counter):
    '''Ranks meet in forward and in backward, for sums that change nothing.'''

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(1, dtype=torch.float64)

    def forward(self, inputs):
        counts = super().forward(inputs)
        return counts + 0 * self.norm(counts)


def made(train, model=Counter):
    return Workload(
        name="counter",
        model=model,
        train=train,
        loss=lambda outputs, targets: -outputs.mean(),
        optimizer=partial(torch.optim.SGD, lr={float(TOTAL_BATCH)}),
        epochs={EPOCHS},
    )


dying = Path(__file__).with_name("dying")
if dying.exists():  # as many processes as it says die before they have said a word
    try:
        dying.rename(mine := dying.with_name(f"dying-{{os.getpid()}}"))  # one at a time
    except FileNotFoundError:
        pass
    else:
        left = int(mine.read_text()) - 1
        if left:
            mine.write_text(str(left))
            mine.rename(dying)
        os.kill(os.getpid(), 9)

workload = made(TensorDataset(torch.arange({SAMPLES}), torch.zeros({SAMPLES})))
streamed = made(Stream())
normalised = made(workload.train, Normalised)
"""


class Running:
    """A run in a thread of its own, to be disturbed from outside."""

    def __init__(
        self,
        tmp_path: Path,
        strategy: str,
        nodes: int,
        *,
        data: str = "workload",
        counter: str = COUNTER,
        listening: Listening | None = None,
        checkpoints: Checkpoints | None = None,
        **cluster: Any,
    ) -> None:
        file = tmp_path / "counter.py"
        file.write_text(textwrap.dedent(counter))
        self._slowly = tmp_path / "slowly"
        self.hanging = tmp_path / "hanging"
        self._runs = tmp_path / "runs"
        self._experiment = Experiment(
            workload=f"{file}:{data}",
            strategy=strategy,  # type: ignore[arg-type]
            cluster=Cluster(nodes=nodes, transport="tcp", timeout_seconds=30, **cluster),
            training=Training(total_batch=TOTAL_BATCH),
            checkpoints=checkpoints or Checkpoints(),
            runs=str(self._runs),
        )
        self._listening = listening
        self.summary: Summary | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.summary = run(self._experiment, listening=self._listening)
        except BaseException as error:
            self.error = error

    @property
    def directory(self) -> Path:
        return next(self._runs.iterdir())

    def events(self, kind: str, rank: int | None = None) -> list[dict[str, Any]]:
        if not self._runs.exists() or not any(self._runs.iterdir()):
            return []
        files = [path for path in event_files(self.directory) if rank is None or path.stem == f"rank-{rank}"]
        return [vars(event) for path in files for event in read_events(path) if event.event == kind]

    def wait_for(self, what: Callable[[], Any], seconds: float = 40.0) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := what()):
            assert time.monotonic() < deadline, "it did not come to that"
            assert self._thread.is_alive() or what(), f"the run has ended before: {self.error}"
            time.sleep(0.02)
        return found

    def wait_for_step(self, step: int) -> None:
        self.wait_for(lambda: any(event["step"] >= step for event in self.events("step")))

    @contextlib.contextmanager
    def slowly(self) -> Iterator[None]:
        """Long steps, so that whatever is to happen now happens before the run is done, on a busy machine too."""
        self._slowly.touch()
        try:
            yield
        finally:
            self._slowly.unlink()

    def pid(self, rank: int) -> int:
        return int(self.wait_for(lambda: self.events("started", rank))[0]["pid"])

    def coordinator(self) -> int:
        lock = str(self.directory / "coordinator.json.lock")
        for process in psutil.process_iter():
            try:
                links = [path.readlink() for path in Path(f"/proc/{process.pid}/fd").iterdir()]
            except OSError:
                continue
            if Path(lock) in links:
                return process.pid
        raise AssertionError("there is no coordinator")

    def end(self, seconds: float = 60.0) -> Summary:
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the run hangs"
        if self.error is not None:
            raise self.error
        assert self.summary is not None
        return self.summary

    def counts(self) -> torch.Tensor:
        return load_file(f"{self.end().run}/model.safetensors")["counts.weight"].reshape(-1)


def recovery_seconds(running: Running, killed: float) -> float:
    """From a moment (of the wall clock's monotonic kind) to the first step of a survivor after it has regrouped."""
    found = []
    for path in event_files(running.directory):
        regrouped = None
        for event in read_events(path):
            if isinstance(event, RankRecovered) and event.time > killed:
                regrouped = event
            elif isinstance(event, Stepped) and regrouped is not None:
                found.append(event.time - killed)
                break
    return max(found)
