"""Real runs on processes, interrupted by signals, gone on with: to the last bit as if nothing had happened."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from minga import Cluster, Experiment, Training
from minga.engines.local import go_on, run
from minga.errors import ConfigError, RankFailed, RunError, RunStopped
from minga.measure.event_reader import read_events
from minga.measure.events import Started, Stepped, Stopped
from minga.report.live import View
from minga.runs.experiment import Checkpoints, load
from minga.runs.workload import load_workload
from minga.testing import train_in_threads
from minga.training.checkpoints.files import list_checkpoints

WORKLOAD = """
    import os, time, torch
    from torch import nn
    from minga.testing.problems import adam, blobs, sgd_with_momentum
    import dataclasses

    def loss(outputs, targets):
        time.sleep(float(os.environ.get("SLOW_SECONDS", "0")))
        return nn.functional.cross_entropy(outputs, targets)

    momentum = dataclasses.replace(blobs(optimizer=sgd_with_momentum), loss=loss)
    with_adam = dataclasses.replace(blobs(optimizer=adam), loss=loss)
"""


@pytest.fixture
def workload_file(tmp_path: Path) -> Path:
    path = tmp_path / "slow_blobs.py"
    path.write_text(textwrap.dedent(WORKLOAD))
    return path


def experiment_of(file: Path, name: str, strategy: str, *, nodes: int = 2, every: int = 20) -> Experiment:
    return Experiment(
        workload=f"{file}:{name}",
        strategy=strategy,
        cluster=Cluster(nodes=nodes),
        training=Training(steps=200, evaluate_every=3),
        checkpoints=Checkpoints(every_steps=every, every_seconds=0),
        runs=str(file.parent / "runs"),
    )


class Interrupting(View):
    """Does something to the run as soon as it has a checkpoint."""

    def __init__(self, interrupt: Callable[[Path], None]) -> None:
        self._interrupt = interrupt
        self.run = Path()
        self._done = False

    def begin(self, run: Path, title: str) -> None:
        self.run = run

    def tick(self) -> None:
        if not self._done and any(checkpoint.complete for checkpoint in list_checkpoints(self.run)):
            self._done = True
            self._interrupt(self.run)


def ask_to_stop(run: Path) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def kill_a_rank(run: Path) -> None:
    started = next(event for event in read_events(run / "events" / "rank-1.jsonl") if isinstance(event, Started))
    os.kill(started.pid, signal.SIGKILL)


def model_of(run: Path) -> torch.Tensor:
    model = load_file(run / "model.safetensors")
    return torch.cat([model[name].reshape(-1) for name in ("0.weight", "0.bias", "2.weight", "2.bias")])


# The others are interrupted in threads (test_same_bits.py), which takes a tenth of the time.
CASES = [
    pytest.param("ring:codec=(power_sgd:rank=1)", "momentum", kill_a_rank, marks=pytest.mark.slow),
    pytest.param("local_sgd:period=8,overlap=5", "with_adam", ask_to_stop, marks=pytest.mark.slow),
    ("ps:mode=sync,servers=2", "with_adam", ask_to_stop),
]


@pytest.mark.chaos
@pytest.mark.parametrize(("strategy", "name", "interrupt"), CASES)
def test_an_interrupted_run_goes_on_to_the_same_bits(
    workload_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    strategy: str,
    name: str,
    interrupt: Callable[[Path], None],
) -> None:
    experiment = experiment_of(workload_file, name, strategy)
    if interrupt is kill_a_rank:  # over tcp, the others would go on
        experiment = dataclasses.replace(experiment, cluster=dataclasses.replace(experiment.cluster, transport="gloo"))
    never = train_in_threads(experiment, load_workload(experiment.workload, None))
    view = Interrupting(interrupt)
    monkeypatch.setenv("SLOW_SECONDS", "0.004")
    with pytest.raises(RunStopped if interrupt is ask_to_stop else RankFailed):
        run(experiment, view)
    assert not (view.run / "model.safetensors").exists()
    stopped_at = max(
        event.step for event in read_events(view.run / "events" / "rank-0.jsonl") if hasattr(event, "step")
    )
    assert 20 <= stopped_at < 200
    monkeypatch.setenv("SLOW_SECONDS", "0")
    with pytest.raises(ConfigError, match=r"has come to step \d+ already; --steps 10 lies before that"):
        go_on(view.run, dataclasses.replace(experiment, training=Training(steps=10)))
    summary = go_on(view.run)
    assert torch.equal(model_of(view.run), never[0].parameters)
    steps = [event.step for event in read_events(view.run / "events" / "rank-0.jsonl") if isinstance(event, Stepped)]
    assert steps == list(range(1, 201))  # each once: what came after the checkpoint did not happen
    assert summary.steps == 200
    assert summary.samples == sum(rank.samples for rank in summary.ranks) > 0


def minga(*arguments: str, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "minga", *arguments]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)  # type: ignore[call-overload, no-any-return]


@pytest.mark.chaos
@pytest.mark.slow
def test_a_terminal_that_is_closed_leaves_a_checkpoint(workload_file: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    command = ["train", f"{workload_file}:with_adam", "-n", "2", "-s", "ring", "--steps", "4000", "--runs", str(runs)]
    # The terminal becomes the session's own, so that its end is heard of; also where tests run under nohup.
    own = (
        "import fcntl, os, signal, sys, termios; signal.signal(signal.SIGHUP, signal.SIG_DFL); "
        "fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, sys.argv[1:])"
    )
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", own, sys.executable, "-m", "minga", *command, "--checkpoint-every", "1000000steps"],
        env={**os.environ, "SLOW_SECONDS": "0.004"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    try:
        wait_for(lambda: _steps_written(runs) > 10, drain=ours)
    finally:
        os.close(ours)
    assert process.wait(timeout=30) == 143
    (run,) = runs.iterdir()
    (stopped,) = [event for event in read_events(run / "events" / "rank-1.jsonl") if isinstance(event, Stopped)]
    last = list_checkpoints(run)[-1]
    assert last.complete and stopped.checkpoint == last.name


def _steps_written(runs: Path) -> int:
    return sum(path.read_text().count('"event": "step"') for path in runs.glob("*/events/rank-1.jsonl"))


def wait_for(condition: Callable[[], bool], *, drain: int) -> None:
    """Until the condition holds, reading away what is written to a terminal."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not begin to train"
        with contextlib.suppress(BlockingIOError):
            os.read(drain, 65536)
        time.sleep(0.02)


@pytest.mark.chaos
def test_the_command_line_stops_goes_on_and_lists(workload_file: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "SLOW_SECONDS": "0.004"}
    runs = tmp_path / "runs"
    command = ["train", f"{workload_file}:with_adam", "-n", "2", "-s", "ring", "--steps", "400", "--runs", str(runs)]
    process = minga(*command, "--checkpoint-every", "20steps", env=environment)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not list(runs.glob("*/checkpoints/*/rank-1.json")):
        time.sleep(0.05)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 143, errors
    assert time.monotonic() - began < 10
    (run,) = runs.iterdir()
    assert "goes on from step-" in errors and f"minga train --resume {run}" in errors
    stopped = [event for event in read_events(run / "events" / "rank-1.jsonl") if isinstance(event, Stopped)]
    assert stopped and stopped[0].checkpoint == list_checkpoints(run)[-1].name
    again = minga("train", "--resume", str(run), "--json", env={**environment, "SLOW_SECONDS": "0"})
    output, errors = again.communicate(timeout=60)
    assert again.returncode == 0, errors
    result = json.loads(output)
    assert (result["steps"], result["run"]) == (400, str(run))
    experiment = load(run / "experiment.toml")
    never = train_in_threads(experiment, load_workload(experiment.workload, None))
    assert torch.equal(model_of(run), never[0].parameters)


def test_only_one_process_trains_in_a_directory(workload_file: Path) -> None:
    from minga.runs.directory import alone_in, make_run_directory

    experiment = experiment_of(workload_file, "momentum", "ring")
    directory = make_run_directory(experiment)
    with alone_in(directory), pytest.raises(RunError, match="trained by another process"):
        go_on(directory)


@pytest.mark.chaos
def test_a_disk_that_is_full_for_a_while_does_not_end_a_run(
    workload_file: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLOW_SECONDS", "0.01")
    experiment = dataclasses.replace(experiment_of(workload_file, "momentum", "ring"), runs=str(small_disk))

    def fill(run: Path) -> None:
        filler = small_disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        time.sleep(1.0)
        filler.unlink()

    view = Interrupting(fill)
    summary = run(experiment, view)
    assert summary.steps == 200
    assert "events can't be written" in "".join(log.read_text() for log in (view.run / "logs").glob("rank-*.log"))
