"""What members must have in common, in the words that the coordinator compares."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from minga import Experiment, Training
from minga.runs.workload import Workload
from minga.testing.problems import blobs
from minga.training.elastic import common_facts
from minga.training.train_state import build_train_state


def facts(workload: Workload, reference: str = "blobs", **training: int) -> dict[str, str]:
    experiment = Experiment(workload=reference, strategy="ring", training=Training(**training))  # type: ignore[arg-type]
    return common_facts(experiment, build_train_state(experiment, workload, 0))


def other_data(workload: Workload) -> Workload:
    inputs, targets = workload.train[:]
    changed = inputs.clone()
    changed[0] += 1
    return dataclasses.replace(workload, train=TensorDataset(changed, targets))


def other_test_data(workload: Workload) -> Workload:
    return dataclasses.replace(workload, test=other_data(workload).train)


def other_model(workload: Workload) -> Workload:
    return dataclasses.replace(workload, model=lambda: nn.Sequential(workload.model(), nn.Linear(3, 3)).double())


@pytest.mark.parametrize(
    ("change", "named"), [(other_data, "data"), (other_test_data, "test data"), (other_model, "model")]
)
def test_what_is_different_is_named_and_nothing_else(change: object, named: str) -> None:
    assert callable(change)
    usual, changed = facts(blobs()), facts(change(blobs()))
    assert {name for name in usual if usual[name] != changed[name]} == {named}


def test_the_same_is_the_same() -> None:
    torch.manual_seed(7)
    first = facts(blobs())
    torch.manual_seed(8)
    assert facts(blobs()) == first


def test_another_seed_and_another_file_are_noticed(tmp_path: Path) -> None:
    assert facts(blobs(), seed=1)["seed"] != facts(blobs(), seed=2)["seed"]
    file = tmp_path / "mine.py"
    words = []
    for content in ("workload = 1\n", "workload = 2\n"):
        file.write_text(content)
        words.append(facts(blobs(), f"{file}:workload")["workload"])
    assert words[0] != words[1]
