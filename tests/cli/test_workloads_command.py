"""`minga workloads`, and what is said where their data are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minga.workloads import WORKLOADS

Minga = Callable[..., Any]

OF_THE_THESES = {
    "mnist-lenet5": "mnist",
    "mnist-nielsen": "mnist",
    "mnist-mlp": "mnist",
    "cifar10-vgg": "cifar10",
    "fish-resnet34": "fish",
    "flickr8k-captions": "flickr8k",
    "shakespeare-gpt": "tiny-shakespeare",
}


def test_the_list_for_machines(minga: Minga, tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    listed = json.loads(minga("workloads", "--json", "--data", str(tmp_path)).stdout)
    by_name = {entry["name"]: entry for entry in listed["workloads"]}
    assert list(by_name) == list(WORKLOADS)
    assert {name: by_name[name]["data"] for name in OF_THE_THESES} == OF_THE_THESES
    assert {entry["data"] for entry in by_name.values() if entry["here"]} == {"embedded", "mnist"}
    assert all(entry["what"].endswith(".") for entry in by_name.values()), "a docstring's first line is a sentence"


def test_the_list_for_people(minga: Minga) -> None:
    done = minga("workloads")
    assert done.returncode == 0
    for word in ("flickr8k-captions", "Regression", "embedded", "fish, not here", "minga train file.py:name"):
        assert word in done.stdout


@pytest.mark.parametrize(("workload", "dataset"), OF_THE_THESES.items())
def test_missing_data_are_told_in_a_line(minga: Minga, tmp_path: Path, workload: str, dataset: str) -> None:
    done = minga("train", workload, "--steps", "1", "--data", str(tmp_path / "nowhere"))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "nowhere" in done.stderr and f"minga data fetch {dataset}" in done.stderr
