"""`minga checkpoints`, and what `minga train` says of checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minga.cli.options import ExperimentOptions
from minga.runs.experiment import Experiment
from minga.training.checkpoints.files import FORMAT
from minga.training.checkpoints.snapshot import Snapshot
from minga.training.checkpoints.writer import Part, write_part

Minga = Callable[..., Any]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with three checkpoints, the last one damaged, the first one the best."""
    import torch

    directory = tmp_path / "a-run"
    directory.mkdir()
    (directory / "experiment.toml").write_text(Experiment(workload="digits").to_toml())
    for step, value in ((10, 0.9), (20, 0.8), (30, None)):
        facts = {
            "format": FORMAT,
            "workload": "digits",
            "strategy": "single",
            "layout": "0",
            "step": step,
            "rank": 0,
            "ranks": 1,
            "order": {"epoch": 0, "offset": 0, "samples": 1},
            "metric": None if value is None else "accuracy",
            "value": value,
        }
        write_part(directory, Part(f"step-{step:08d}", Snapshot({"parameters": torch.zeros(100)}, facts)))
    (directory / "checkpoints" / "step-00000030" / "rank-0.safetensors").write_bytes(b"cut")
    return directory


def test_the_list_for_machines(minga: Minga, run: Path) -> None:
    done = minga("checkpoints", str(run), "--json")
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    assert [(entry["step"], entry["whole"], entry["best"]) for entry in listed] == [
        (10, True, True),
        (20, True, False),
        (30, False, False),
    ]
    assert "rank-0.safetensors has 3 bytes instead of" in listed[2]["problem"]
    assert listed[0]["bytes"] > 400 and listed[0]["time"].startswith("20")


def test_the_list_for_people(minga: Minga, run: Path) -> None:
    done = minga("checkpoints", str(run))
    assert done.returncode == 0
    for word in ("10", "20", "30", "whole", "damaged", "best", "minga train --resume"):
        assert word in done.stdout


def test_no_whole_one_is_exit_code_1(minga: Minga, run: Path) -> None:
    for path in run.rglob("rank-0.safetensors"):
        path.unlink()
    assert minga("checkpoints", str(run)).returncode == 1
    failed = minga("train", "--resume", str(run))
    assert failed.returncode == 1
    assert "none of the 3 checkpoints" in failed.stderr and "start again" in failed.stderr


def test_a_run_without_any(minga: Minga, tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text(Experiment(workload="digits").to_toml())
    done = minga("checkpoints", str(tmp_path))
    assert (done.returncode, "has no checkpoints" in done.stdout) == (0, True)


ERRORS = {
    "no run": (["checkpoints", "nowhere"], ["nowhere is no directory of a run"]),
    "resume nothing": (["train", "--resume", "nowhere"], ["nowhere is no directory of a run"]),
    "both": (["train", "digits", "--resume", "a-run"], ["leave 'digits' out"]),
    "neither": (["train", "--nodes", "2"], ["say what to train"]),
    "bad time": (["train", "digits", "--checkpoint-every", "soon"], ["'soon'", "30s", "500steps"]),
    "no time": (["train", "digits", "--checkpoint-every", "0s"], ["30s", "500steps"]),
    "keep": (["train", "digits", "--set", "checkpoints.keep=0"], ["checkpoints.keep: should be at least 1"]),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_say_what_is_possible(minga: Minga, run: Path, name: str) -> None:
    arguments, words = ERRORS[name]
    done = minga(*arguments)
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr


def test_options_become_settings() -> None:
    def settings(**options: Any) -> Any:
        return ExperimentOptions(options).experiment("digits").checkpoints

    assert (settings(checkpoint_every="30s").every_seconds, settings(checkpoint_every="30s").every_steps) == (30, 0)
    assert settings(checkpoint_every="500 steps").every_steps == 500
    assert settings(checkpoint_every="500steps").every_seconds == 0
    assert not settings(checkpoints=False).enabled
    assert settings().every_seconds == 60
