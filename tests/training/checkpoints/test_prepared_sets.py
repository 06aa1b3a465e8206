"""Prepared sets, read ahead by threads: the same training as from memory, and a run goes on to the same bits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import TensorDataset

from helpers.going_on import experiment_of
from minga.data.formats import origin_of_path
from minga.data.prepared.dataset import PreparedDataset
from minga.data.preparing import prepare as prepare_module
from minga.data.preparing.prepare import Recipe, prepare
from minga.errors import MingaError
from minga.runs.workload import Workload
from minga.testing.worlds import train_with_checkpoints


def sgd(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


@pytest.fixture
def prepared(tmp_path: Path) -> Workload:
    """Three clouds of points on disk, in several shards."""
    generator = torch.Generator().manual_seed(7)
    classes = torch.arange(200) % 3
    points = 2 * torch.randn(3, 5, generator=generator)[classes] + torch.randn(200, 5, generator=generator)
    rows = [
        ",".join(f"{value:.4f}" for value in row) + f",{'abc'[label]}"
        for row, label in zip(points, classes, strict=True)
    ]
    (tmp_path / "blobs.csv").write_text("p,q,r,s,t,kind\n" + "\n".join(rows) + "\n")
    prepare(origin_of_path(tmp_path / "blobs.csv"), tmp_path / "out", Recipe(shard_bytes=1024, normalise=True))

    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))

    train, test = PreparedDataset(tmp_path / "out", "train"), PreparedDataset(tmp_path / "out", "test")
    return Workload(name="blobs", model=model, train=train, test=test, optimizer=sgd, batch=8, epochs=4)


@pytest.mark.parametrize("strategy", ["ring", "local_sgd:period=4"])
def test_training_is_the_same_as_from_memory(tmp_path: Path, prepared: Workload, strategy: str) -> None:
    dataset = prepared.train
    assert isinstance(dataset, PreparedDataset)
    in_memory = dataclasses.replace(prepared, train=TensorDataset(*dataset.read_batch(torch.arange(len(dataset)))))
    experiment = experiment_of(strategy, 3, steps=None, epochs=3)
    from_disk = train_with_checkpoints(tmp_path / "a", experiment, prepared)
    expected = train_with_checkpoints(tmp_path / "b", experiment, in_memory)
    for one, other in zip(from_disk, expected, strict=True):
        assert torch.equal(one.replica.parameters, other.replica.parameters)
        assert one.ahead is not None and one.ahead.hits > one.ahead.misses
        assert other.ahead is None


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("strategy", ["ring", "ps:mode=sync"])
def test_a_run_goes_on_from_a_checkpoint_to_the_same_bits(
    tmp_path: Path, prepared: Workload, monkeypatch: pytest.MonkeyPatch, strategy: str, blocks: bool
) -> None:
    if blocks:
        monkeypatch.setattr(prepare_module, "_LARGE_BYTES", 100)
        monkeypatch.setattr(prepare_module, "_BLOCK_BYTES", 200)
        prepare(origin_of_path(tmp_path / "blobs.csv"), tmp_path / "blocks", Recipe(normalise=True))
        prepared = dataclasses.replace(prepared, train=PreparedDataset(tmp_path / "blocks"))
        assert prepared.train.blocks is not None  # type: ignore[attr-defined]
    experiment = experiment_of(strategy, 2, steps=30, every_steps=10)
    kept = train_with_checkpoints(tmp_path, experiment, prepared)
    resumed = train_with_checkpoints(tmp_path, experiment, prepared, resume="step-00000010")
    assert torch.equal(kept[0].replica.parameters, resumed[0].replica.parameters)
    assert kept[0].order.position() == resumed[0].order.position()


def test_a_run_does_not_go_on_with_a_set_that_was_prepared_otherwise(tmp_path: Path, prepared: Workload) -> None:
    """As many samples, but others: some that are to be tested on would be learned."""
    experiment = experiment_of("ring", 2, steps=20, every_steps=10)
    train_with_checkpoints(tmp_path, experiment, prepared)
    prepare(origin_of_path(tmp_path / "blobs.csv"), tmp_path / "again", Recipe(normalise=True, seed=1))
    otherwise = dataclasses.replace(prepared, train=PreparedDataset(tmp_path / "again"))
    assert len(otherwise.train) == len(prepared.train)  # type: ignore[arg-type]
    with pytest.raises(MingaError, match=r"the data set is another one now \(160 samples, .* bring that one back"):
        train_with_checkpoints(tmp_path, experiment, otherwise, resume="step-00000010")


@pytest.mark.parametrize("read_ahead", [0, 2])
def test_reading_ahead_can_be_set(tmp_path: Path, prepared: Workload, read_ahead: int) -> None:
    experiment = experiment_of("single", 1, steps=5, read_ahead=read_ahead)
    train_state = train_with_checkpoints(tmp_path, experiment, prepared)[0]
    assert (train_state.ahead is None) == (read_ahead == 0)


def test_reader_processes_train_to_the_same_bits(tmp_path: Path, prepared: Workload) -> None:
    alone = train_with_checkpoints(tmp_path / "a", experiment_of("ring", 2, steps=20), prepared)
    helped = train_with_checkpoints(tmp_path / "b", experiment_of("ring", 2, steps=20, readers=2), prepared)
    for one, other in zip(alone, helped, strict=True):
        assert torch.equal(one.replica.parameters, other.replica.parameters)
        assert other.readers is not None and len(other.readers.pids) == 2
        other.readers.close()
