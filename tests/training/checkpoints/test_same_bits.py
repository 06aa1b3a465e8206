"""A run that goes on from a checkpoint has the same bits as one that was never interrupted, or had no checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from helpers.going_on import experiment_of
from minga.errors import RunStopped
from minga.testing import train_in_threads
from minga.testing.problems import adam, blobs, sgd_with_momentum
from minga.testing.worlds import train_with_checkpoints
from minga.training.checkpoints.files import Checkpoint, list_checkpoints
from minga.training.checkpoints.resume import find_last_good

STRATEGIES = {
    "single": 1,
    "native": 2,
    "ring": 3,
    "tree": 3,
    "halving_doubling": 3,
    "mesh": 3,
    "direct": 2,
    "two_level:group_size=2": 3,
    "ring:bucket_bytes=64": 2,
    "ring:codec=half": 2,
    "ring:codec=bfloat16": 2,
    "ring:codec=int8": 2,
    "ring:codec=(int8:feedback=true,rounding=nearest)": 3,
    "ring:codec=sign": 3,
    "ring:codec=(top_k:ratio=0.1)": 3,
    "ring:codec=(random_k:ratio=0.1)": 3,
    "ring:codec=(power_sgd:rank=1)": 3,
    "ring:codec=(power_sgd:rank=1,factors=int8)": 2,
    "local_sgd:period=4": 2,
    "local_sgd:period=4,overlap=3": 3,
    "local_sgd:period=5,overlap=4,codec=(power_sgd:rank=1)": 2,
    "local_sgd:period=4,post_local=10": 2,
    "local_sgd:period=1,growth=2,growth_steps=8": 2,
    "diloco:period=6": 2,
    "diloco:period=8,fragments=3,overlap=2,codec=int8": 3,
    "ps:mode=sync": 2,
    "ps:mode=sync,servers=2": 3,
    "ps:mode=sync,servers=2,codec=half": 2,
    "ps:mode=sync,servers=2,codec=(top_k:ratio=0.1)": 2,
    "ps:mode=sync,placement=beside": 2,
    "ps:mode=ssp,staleness=0": 2,
    "gossip": 3,
    "gossip:overlap=false,graph=ring": 3,
    "gossip:graph=random,period=2,codec=bfloat16": 4,
    "gossip:graph=ring,codec=half": 3,
    "gossip:algorithm=push_sum": 3,
    "gossip:algorithm=push_sum,graph=random,overlap=false": 3,
    "hierarchical:site_size=2": 4,
    "hierarchical:site_size=2,across=(gossip:algorithm=push_sum,period=3)": 4,
    "hierarchical:site_size=2,across=(diloco:period=5,overlap=2)": 4,
    "hierarchical:site_size=2,across=ring": 3,
    "switch:at=10,mode=sync": 2,
    "switch:at=20,mode=sync,servers=2": 2,
    "switch:window=4,patience=1,mode=sync": 2,
}


MOMENTUM_TOO = ("ring", "local_sgd:period=4,overlap=3", "diloco:period=6", "ps:mode=sync,servers=2")


@pytest.mark.parametrize(
    ("strategy", "optimizer"),
    [*((strategy, adam) for strategy in STRATEGIES), *((strategy, sgd_with_momentum) for strategy in MOMENTUM_TOO)],
)
def test_going_on_gives_the_same_bits(tmp_path: Path, strategy: str, optimizer: Any) -> None:
    experiment = experiment_of(strategy, STRATEGIES[strategy])
    workload = blobs(optimizer=optimizer)
    never = train_in_threads(experiment, workload)
    kept = train_with_checkpoints(tmp_path, experiment, workload)
    names = [checkpoint.name for checkpoint in list_checkpoints(tmp_path)]
    assert names == ["step-00000007", "step-00000014", "step-00000021", "step-00000028"]
    resumed = train_with_checkpoints(tmp_path, experiment, workload, resume="step-00000014")
    for rank in range(experiment.cluster.nodes):
        assert torch.equal(kept[rank].replica.parameters, never[rank].parameters), "checkpoints change training"
        assert torch.equal(resumed[rank].replica.parameters, never[rank].parameters), "going on changes training"
    assert resumed[0].replica.step == 30
    assert resumed[0].order.progress == kept[0].order.progress


@pytest.mark.parametrize("step", [7, 14, 28])
def test_auto_goes_on_while_it_looks_and_after_it_has_planned(tmp_path: Path, step: int) -> None:
    """What it chooses depends on the time that things take, so bits may be others; replicas agree all the same."""
    experiment, workload = experiment_of("auto", 3), blobs(optimizer=adam)
    kept = train_with_checkpoints(tmp_path, experiment, workload)
    resumed = train_with_checkpoints(tmp_path, experiment, workload, resume=f"step-{step:08}")
    for train_states in (kept, resumed):
        assert all(torch.equal(each.replica.parameters, train_states[0].replica.parameters) for each in train_states)
    assert resumed[0].replica.step == 30
    assert bool(torch.isfinite(resumed[0].replica.parameters).all())


INTERRUPTED = [
    ("ring", sgd_with_momentum),
    ("ring", adam),
    ("ring:codec=(top_k:ratio=0.1)", sgd_with_momentum),
    ("ring:codec=(power_sgd:rank=1)", sgd_with_momentum),
    ("local_sgd:period=5,overlap=4,codec=(power_sgd:rank=1)", adam),
    ("diloco:period=6", adam),
    ("gossip", adam),
    ("gossip:algorithm=push_sum", adam),
    ("ps:mode=sync,servers=2", adam),
    ("switch:at=10,mode=sync", adam),
    ("hierarchical:site_size=2", adam),
]


@pytest.mark.parametrize(("strategy", "optimizer"), INTERRUPTED)
@pytest.mark.parametrize("how", ["asked to stop", "dies"])
def test_an_interrupted_training_goes_on(tmp_path: Path, strategy: str, optimizer: Any, how: str) -> None:
    nodes = STRATEGIES[strategy]
    experiment = experiment_of(strategy, nodes, steps=60)
    workload = blobs(optimizer=optimizer)
    never = train_in_threads(experiment, workload)
    if how == "asked to stop":
        with pytest.raises(RunStopped):
            train_with_checkpoints(tmp_path, experiment, workload, stopping=after(15))
    else:
        with pytest.raises(ZeroDivisionError):
            train_with_checkpoints(tmp_path, experiment, dataclasses.replace(workload, loss=dies_after(18 * nodes)))
    last = find_last_good(tmp_path)
    if how == "dies":
        assert last.name in ("step-00000007", "step-00000014")
    resumed = train_with_checkpoints(tmp_path, experiment, workload, resume=last.name)
    for rank in range(nodes):
        assert torch.equal(resumed[rank].replica.parameters, never[rank].parameters)


def after(questions: int) -> Callable[[], bool]:
    """True from the n-th question on."""
    calls = 0

    def asked() -> bool:
        nonlocal calls
        calls += 1
        return calls >= questions

    return asked


def dies_after(calls: int) -> Callable[[Tensor, Tensor], Tensor]:
    left = calls

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        nonlocal left
        left -= 1
        if left < 0:
            raise ZeroDivisionError("this rank is gone")
        return torch.nn.functional.cross_entropy(outputs, targets)

    return loss


def test_momentum_correction_goes_on_too(tmp_path: Path) -> None:
    for name, strategy in enumerate(["ring", "ps:mode=sync"]):
        run = tmp_path / str(name)
        codec = "codec=(top_k:ratio=0.1,momentum_correction=true)"
        experiment = experiment_of(strategy + (":" if ":" not in strategy else ",") + codec, 2)
        kept = train_with_checkpoints(run, experiment, blobs())
        resumed = train_with_checkpoints(run, experiment, blobs(), resume="step-00000014")
        assert torch.equal(kept[0].replica.parameters, resumed[0].replica.parameters)


def test_random_numbers_and_statistics_go_on_too(tmp_path: Path) -> None:
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Dropout(0.3), nn.Linear(7, 3)).double()

    workload = dataclasses.replace(blobs(), model=model)
    for name, strategy, nodes in (("alone", "single", 1), ("three", "ring", 3)):
        run = tmp_path / name
        experiment = experiment_of(strategy, nodes, drop_last=True)
        # Threads share torch's random numbers, so with several ranks dropout would be left to chance.
        chosen = workload if nodes == 1 else dataclasses.replace(workload, model=lambda: without_dropout(model()))
        kept = train_with_checkpoints(run, experiment, chosen)
        resumed = train_with_checkpoints(run, experiment, chosen, resume="step-00000014")
        for mine, theirs in zip(resumed, kept, strict=True):
            assert torch.equal(mine.replica.parameters, theirs.replica.parameters)
            for one, other in zip(mine.replica.model.buffers(), theirs.replica.model.buffers(), strict=True):
                assert torch.equal(one, other)


def without_dropout(model: nn.Module) -> nn.Module:
    return nn.Sequential(*(layer for layer in model.children() if not isinstance(layer, nn.Dropout)))


def test_a_part_is_one_ranks_and_has_its_position(tmp_path: Path) -> None:
    experiment = experiment_of("ring", 3, steps=10)
    train_with_checkpoints(tmp_path, experiment, blobs())
    checkpoint = Checkpoint(tmp_path / "checkpoints" / "step-00000007")
    assert checkpoint.problem() is None
    manifests = [checkpoint.manifest(rank) for rank in range(3)]
    assert [(each.rank, each.ranks, each.step) for each in manifests] == [(0, 3, 7), (1, 3, 7), (2, 3, 7)]
    assert (manifests[0].epoch, manifests[0].offset) == (1, 0)  # 150 samples in 7 batches of 24
