"""Going on with another number of ranks, or another strategy: correct, if not to the bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from helpers.going_on import experiment_of
from minga.errors import RunStopped
from minga.strategies import Gossip
from minga.testing.problems import adam, blobs
from minga.testing.worlds import train_with_checkpoints
from minga.training.checkpoints.files import Checkpoint, list_checkpoints
from minga.training.checkpoints.parts import load_shared
from minga.training.checkpoints.resume import find_last_good
from minga.training.checkpoints.snapshot import Snapshot

CHANGES = [
    ("ring", 3, "ring", 2),
    ("ring", 2, "ring", 4),
    ("ring:codec=(top_k:ratio=0.1)", 3, "ring:codec=(top_k:ratio=0.1)", 2),
    ("ps:mode=sync,servers=2", 3, "ps:mode=sync,servers=3", 2),
    ("ps:mode=async,servers=2", 2, "ps:mode=async", 3),
    ("local_sgd:period=4,overlap=2", 3, "local_sgd:period=4,overlap=2", 2),
    ("diloco:period=6", 2, "diloco:period=6", 3),
    ("gossip", 3, "gossip", 4),
    ("gossip:algorithm=push_sum", 3, "gossip:algorithm=push_sum", 2),
    ("switch:at=10,mode=sync", 2, "switch:at=10,mode=sync", 3),
    ("hierarchical:site_size=2", 4, "hierarchical:site_size=2", 2),
    ("ring", 2, "ps:mode=sync", 2),
    ("ring", 2, "single", 1),
]


def first_checkpoint(run: Path) -> Checkpoint:
    return list_checkpoints(run)[0]


@pytest.mark.parametrize(("before", "nodes", "after", "then"), CHANGES)
def test_going_on_elsewhere(
    tmp_path: Path, before: str, nodes: int, after: str, then: int, caplog: pytest.LogCaptureFixture
) -> None:
    workload = blobs(optimizer=adam)
    one = experiment_of(before, nodes, every_steps=14)
    train_with_checkpoints(tmp_path, one, workload)
    checkpoint = first_checkpoint(tmp_path)
    assert checkpoint.problem() is None
    shared = load_shared(checkpoint)
    assert shared.tensors["parameters"].shape == (7 * 6 + 8 * 3,)
    other = experiment_of(after, then, every_steps=14, steps=40)
    train_states = train_with_checkpoints(tmp_path, other, workload, resume=checkpoint.name)
    # Position: 14 global batches of `nodes` x 8, then 26 of `then` x 8, never beyond the end of an epoch.
    assert train_states[0].replica.step == 40
    assert train_states[0].order.epoch >= 14 * nodes * 8 // 150
    assert "what each of them remembered is dropped" in caplog.text
    inputs, targets = workload.train[:]
    with torch.no_grad():
        loss = float(workload.loss(train_states[0].replica.model(inputs), targets))
    assert loss < 0.8


def test_the_position_is_exact(tmp_path: Path) -> None:
    """What the first world had not taken of an epoch is all that the second takes of it."""
    train_with_checkpoints(tmp_path, experiment_of("ring", 3, every_steps=4, steps=5), blobs())
    manifest = Checkpoint(tmp_path / "checkpoints" / "step-00000004").manifest(0)
    assert (manifest.epoch, manifest.offset) == (0, 4 * 24)
    train_states = train_with_checkpoints(tmp_path, experiment_of("ring", 2, steps=8), blobs(), resume="step-00000004")
    assert (train_states[0].order.epoch, train_states[0].order.offset) == (1, 0)  # 54 left: batches of 16, 16, 16, 6


def test_joined_parts_are_the_servers(tmp_path: Path) -> None:
    train_with_checkpoints(tmp_path, experiment_of("ps:mode=sync,servers=3", 2), blobs(optimizer=adam))
    checkpoint = first_checkpoint(tmp_path)
    shared = load_shared(checkpoint)
    worker = read(checkpoint, 0)
    assert torch.equal(shared.tensors["parameters"], worker.tensors["parameters"])  # in step, so they are the same
    pieces = shared.facts["optimizer"]
    assert [piece["start"] for piece in pieces[1:]] == [piece["stop"] for piece in pieces[:-1]]
    assert (pieces[0]["start"], pieces[-1]["stop"]) == (0, 66)
    assert all(set(piece["values"]) == {"step", "exp_avg", "exp_avg_sq"} for piece in pieces)


def read(checkpoint: Checkpoint, rank: int) -> Snapshot:
    from minga.training.checkpoints.parts import read_part

    return read_part(checkpoint, rank)


@pytest.mark.parametrize("strategy", [Gossip(), Gossip(algorithm="push_sum")])
def test_where_replicas_differ_the_mean_goes_on(tmp_path: Path, strategy: Gossip) -> None:
    train_with_checkpoints(tmp_path, experiment_of(strategy, 3), blobs())
    checkpoint = first_checkpoint(tmp_path)
    parts = [read(checkpoint, rank).tensors for rank in range(3)]
    assert not torch.equal(parts[0]["parameters"], parts[1]["parameters"])
    vectors = torch.stack([part.get("contribution", part["parameters"]) for part in parts])
    torch.testing.assert_close(load_shared(checkpoint).tensors["parameters"], vectors.mean(0))


LEFT_TO_TIME = [
    "adaptive",
    "adaptive:codec=(int8:feedback=true,rounding=nearest)",
    "ps:mode=async",
    "ps:mode=async,servers=2,codec=half",
    "ps:mode=ssp,staleness=2",
    "gossip:algorithm=asynchronous",
    "switch:at=10",
]


@pytest.mark.parametrize("strategy", LEFT_TO_TIME)
def test_they_stop_when_asked_to_and_go_on(tmp_path: Path, strategy: str) -> None:
    workload = blobs(optimizer=adam)
    experiment = experiment_of(strategy, 2, every_steps=1000, steps=3000)
    answers = iter(range(1 << 30))
    with pytest.raises(RunStopped):
        train_with_checkpoints(tmp_path, experiment, workload, stopping=lambda: next(answers) > 60)
    last = find_last_good(tmp_path)
    assert last.manifest(0).step < 3000
    shorter = experiment_of(strategy, 2, every_steps=1000, steps=last.manifest(0).step + 30)
    train_states = train_with_checkpoints(tmp_path, shorter, workload, resume=last.name, session=1)
    assert train_states[0].replica.step == last.manifest(0).step + 30
    assert torch.equal(train_states[0].replica.parameters, train_states[1].replica.parameters)


@pytest.mark.parametrize("strategy", LEFT_TO_TIME)
def test_strategies_that_depend_on_time_go_on_too(tmp_path: Path, strategy: str) -> None:
    workload = blobs(optimizer=adam)
    experiment = experiment_of(strategy, 2, every_steps=12, steps=60)
    train_with_checkpoints(tmp_path, experiment, workload)
    good = [checkpoint for checkpoint in list_checkpoints(tmp_path) if checkpoint.problem() is None]
    assert len(good) >= 3
    train_states = train_with_checkpoints(tmp_path, experiment, workload, resume=good[1].name, session=7)
    assert train_states[0].replica.step == 60
    assert torch.equal(train_states[0].replica.parameters, train_states[1].replica.parameters)
    inputs, targets = workload.train[:]
    with torch.no_grad():
        assert float(workload.loss(train_states[0].replica.model(inputs), targets)) < 0.8
