"""Studies that really run: to their end, with failures, interrupted, killed."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from rich.console import Console

import minga
from minga.lab import registry
from minga.study import Batch, Study, StudyView, outcome_of, run_study, study_view_for
from minga.study.answer import rows_of


def small(**changes: Any) -> Study:
    plain: dict[str, Any] = {
        "name": "small",
        "question": "?",
        "experiment": {"workload": "digits", "training": {"steps": 3}},
        "batch": Batch(policy="total", size=8),
        "repetitions": 1,
    }
    return Study(**(plain | changes))


def lines_of(directory: Path) -> list[dict[str, Any]]:
    file = directory / "results.jsonl"
    whole = file.read_bytes().rpartition(b"\n")[0] if file.exists() else b""
    return [json.loads(line) for line in whole.splitlines()]


def test_a_study_runs_what_is_missing_and_nothing_twice(tmp_path: Path) -> None:
    screen = Console(file=io.StringIO(), force_terminal=False, width=200)
    first = run_study(small(grid={"cluster.nodes": [1]}, warm_up=1), tmp_path / "out", study_view_for(screen))
    assert [result.state for result in first.results] == ["done"]
    again = run_study(small(grid={"cluster.nodes": [1]}), tmp_path / "out")
    assert again.results == first.results
    wider = run_study(small(grid={"cluster.nodes": [1, 2]}), tmp_path / "out", study_view_for(screen))
    assert [result.label for result in wider.results] == [job.cell.label for job in wider.study.jobs]
    assert len(lines_of(tmp_path / "out")) == 2
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 2
    assert not (tmp_path / "out" / "warm-up").exists()
    one, two = rows_of(wider)
    assert (one.runs, one.speedup) == (1, 1.0)
    assert two.seconds is not None and two.accuracy is not None and two.speedup is not None
    told = screen.file.getvalue()  # type: ignore[attr-defined]
    for words in ("warm-up: 1 node", "1/1 1 node, repetition 1: done", "1 done before, 1 to do", "left (estimated)"):
        assert words in told


def test_pretraining_is_done_once_and_all_runs_begin_with_its_weights(tmp_path: Path) -> None:
    screen = Console(file=io.StringIO(), force_terminal=False, width=200)
    still = {"workload": "digits", "training": {"steps": 1, "learning_rate": 1e-9}}
    before = {"training": {"steps": 100, "learning_rate": 0.003}}
    outcome = run_study(small(experiment=still, pretraining=before), tmp_path / "out", study_view_for(screen))
    (row,) = rows_of(outcome)
    assert row.accuracy is not None and row.accuracy.median > 0.5  # by chance: 0.1
    (weights,) = (tmp_path / "out").glob("pretrained-*.safetensors")
    written = weights.stat().st_mtime_ns
    run_study(small(experiment=still, pretraining=before, repetitions=2), tmp_path / "out")
    assert weights.stat().st_mtime_ns == written
    assert not (tmp_path / "out" / "pretraining").exists()
    assert screen.file.getvalue().count("pretraining") == 1  # type: ignore[attr-defined]


BROKEN = """
import minga, pathlib, torch
from torch import nn
from torch.utils.data import TensorDataset

class Model(nn.Linear):
    def forward(self, inputs):
        if pathlib.Path(__file__).with_name("broken").exists():
            raise RuntimeError("out of ideas")
        return super().forward(inputs)

train = TensorDataset(torch.randn(32, 4), torch.randint(0, 2, (32,)))
workload = minga.Workload(name="mine", model=lambda: Model(4, 2), train=train, test=train)
"""


@pytest.mark.slow
def test_a_failing_run_is_remembered_the_study_goes_on_and_it_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BROKEN)
    (tmp_path / "broken").touch()
    named = [
        {"label": "broken", "workload": f"{tmp_path / 'mine.py'}:workload"},
        {"label": "fine", "workload": "digits"},
    ]
    study = small(environment=named)
    outcome = run_study(study, tmp_path / "out")
    assert {result.label: result.state for result in outcome.results} == {"broken": "failed", "fine": "done"}
    assert outcome.failed[0].error is not None and "out of ideas" in outcome.failed[0].error
    (tmp_path / "broken").unlink()
    again = run_study(study, tmp_path / "out")
    assert {result.state for result in again.results} == {"done"}
    assert [line["state"] for line in lines_of(tmp_path / "out")].count("failed") == 1
    assert len(lines_of(tmp_path / "out")) == 3  # the fine one was not run again


class Impatient(StudyView):
    """Somebody who presses Ctrl-C as soon as a run has begun."""

    def begin(self, run: Path, title: str) -> None:
        self.run = run

    def tick(self) -> None:
        raise KeyboardInterrupt


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    view = Impatient()
    with pytest.raises(KeyboardInterrupt):
        run_study(small(), tmp_path / "out", view)
    assert not view.run.exists()
    assert outcome_of(small(), tmp_path / "out").missing == 1


# --- killed ------------------------------------------------------------------------------------------------------


def wait_for(happened: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"still waiting for {what}"
        time.sleep(0.01)


@pytest.mark.chaos
@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_where_it_was(tmp_path: Path, labs_possible: None) -> None:
    file, out = tmp_path / "small.toml", tmp_path / "out"
    cluster = {"nodes": 2, "cpu": [0.9], "network": {"bandwidth": "50mbit", "delay": "1ms"}}
    experiment = {"workload": "digits", "cluster": cluster, "training": {"steps": 40}}
    file.write_text(small(experiment=experiment, repetitions=3).to_toml())
    command = [sys.executable, "-m", "minga", "bench", str(file), "--out", str(out), "--json", "--no-report"]
    environment = os.environ | {"PYTHONPATH": str(Path(minga.__file__).parents[1])}

    def runs() -> set[Path]:
        return set((out / "runs").glob("*"))

    stale: set[Path] = set()
    moments: dict[str, Callable[[], bool]] = {
        "a run's directory": lambda: bool(runs() - stale),
        "a run that trains": lambda: any((run / "events" / "rank-0.jsonl").exists() for run in runs() - stale),
        "a result": lambda: bool(lines_of(out)),
    }
    finished: list[dict[str, Any]] = []
    for what, happened in moments.items():
        bench = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
        wait_for(happened, what)
        # Network namespaces live in processes alone: they are gone with the last of these.
        family = psutil.Process(bench.pid).children(recursive=True)
        bench.send_signal(signal.SIGKILL)
        bench.wait()
        wait_for(lambda: not any(map(alive, family)), "processes of run and lab to end by themselves")  # noqa: B023
        wait_for(lambda: not labs_of(bench.pid), "the lab to be gone")  # noqa: B023
        assert lines_of(out)[: len(finished)] == finished
        finished, stale = lines_of(out), runs()
        assert len(stale) <= len(finished) + 1  # what was cut short before is gone
    assert 0 < len(finished) < 3
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["done"] == 3
    final = lines_of(out)
    assert final[: len(finished)] == finished
    assert [(line["repetition"], line["state"]) for line in final] == [(0, "done"), (1, "done"), (2, "done")]
    assert {str(run.relative_to(out)) for run in runs()} == {line["run"] for line in final}


def labs_of(owner: int) -> list[str]:
    """What is left of labs that a process has made: files, and control groups of labs that nobody keeps."""
    return [record.name for record in registry.records() if record.owner == owner] + registry.leftovers()


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
