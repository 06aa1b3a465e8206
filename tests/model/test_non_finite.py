"""NaN and infinities in one rank's gradients: nobody's parameters change, and the rank is named."""

from __future__ import annotations

import dataclasses
import json
import math
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from minga.comm.threads import run_threads
from minga.comm.transport import Transport
from minga.errors import DivergedError, PeerLost
from minga.measure.recorder import Recorder
from minga.model.layout import Layout
from minga.model.non_finite import NonFiniteSteps, all_finite, find_non_finite
from minga.model.replica import Replica
from minga.runs.directory import event_file
from minga.runs.experiment import Checkpoints, Cluster, Experiment, Training
from minga.runs.workload import Workload
from minga.testing.problems import blobs
from minga.training.checkpoints.files import list_checkpoints
from minga.training.checkpoints.manager import CheckpointManager
from minga.training.checkpoints.parts import read_part
from minga.training.loop import train
from minga.training.train_state import build_train_state


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_any_bad_number_is_found(dtype: torch.dtype, value: float) -> None:
    vector = torch.ones(70_000, dtype=dtype)
    assert all_finite(vector)
    vector[69_999] = value
    assert not all_finite(vector)
    vector[0] = -value  # opposite infinities
    assert not all_finite(vector)


def test_large_numbers_are_numbers() -> None:
    assert all_finite(torch.full((10,), 3e38))  # their sum is none
    assert all_finite(torch.empty(0))


def test_the_layer_is_named() -> None:
    layout = Layout.of([("first", torch.zeros(3)), ("second.weight", torch.zeros(2, 2)), ("third", torch.zeros(1))])
    vector = torch.zeros(8)
    vector[1] = float("nan")
    vector[5] = float("inf")
    found = find_non_finite(layout.places, vector)
    assert (found.layer, found.value) == ("second.weight", float("inf"))
    assert str(found) == "inf in the gradient of second.weight"
    assert find_non_finite(layout.places[1:], vector[3:], 3).layer == "second.weight"


def test_too_many_in_a_row_are_the_end_on_the_rank_that_has_them() -> None:
    bad = find_non_finite(Layout.of([("layer", torch.zeros(1))]).places, torch.tensor([float("nan")]))
    steps = NonFiniteSteps(3)
    told: dict[str, Any] = {"rank": 1, "rates": [0.5]}
    for step in (1, 2):
        steps.stepped(step=step, found=bad, skipped=True, **told)
    steps.stepped(step=3, found=None, skipped=False, **told)
    for step in (4, 5):
        steps.stepped(step=step, found=bad, skipped=True, **told)
    with pytest.raises(DivergedError, match=r"nan in the gradient of layer on rank 1 at step 6.*rate \(now 0.5"):
        steps.stepped(step=6, found=bad, skipped=True, **told)
    others = NonFiniteSteps(1)
    with pytest.raises(PeerLost, match="another rank's non-finite values"):
        others.stepped(step=1, found=None, skipped=True, **told)


BAD_STEP, BAD_RANK = 5, 1


def bad_on_one_rank(workload: Workload, steps: tuple[int, ...] = (BAD_STEP,), *, in_loss: bool = False) -> Workload:
    """A gradient that is no number, of one layer, on rank 1 in these steps; or, `in_loss`, the loss."""
    calls: dict[str, int] = {}

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        name = threading.current_thread().name
        calls[name] = calls.get(name, 0) + 1
        value = torch.nn.functional.cross_entropy(outputs, targets)
        if name == f"rank-{BAD_RANK}" and calls[name] in steps:
            if in_loss:
                return value * math.nan
            return value + (outputs.sum(0) * 0).abs().sqrt().sum()
        return value

    return dataclasses.replace(workload, loss=loss)


EVERY_OTHER_STEP = Checkpoints(every_steps=2, every_seconds=0, keep=50)


def watch(
    strategy: Any,
    workload: Workload,
    run: Path,
    *,
    steps: int,
    nodes: int = 3,
    checkpoints: Checkpoints = EVERY_OTHER_STEP,
    **options: Any,
) -> list[list[Tensor]]:
    """The parameters of each worker after each step."""
    experiment = Experiment(
        workload="blobs",
        strategy=strategy,
        cluster=Cluster(nodes=nodes),
        training=Training(steps=steps, evaluate_every=0, **options),
        checkpoints=checkpoints,
    )
    train_states = [build_train_state(experiment, workload, rank) for rank in range(experiment.ranks)]
    seen: list[list[Tensor]] = [[] for _ in range(experiment.ranks)]

    class Watching(CheckpointManager):
        def stepped(self, *, good: bool, metrics: Any) -> None:
            seen[self._comm.rank].append(self._train_state.replica.parameters.clone())
            super().stepped(good=good, metrics=metrics)
            self._writer.wait()

    def body(comm: Transport) -> Replica:
        recorder = Recorder(event_file(run, comm.rank))
        checkpoints = Watching(run, experiment.checkpoints, train_states[comm.rank], recorder)
        try:
            train(experiment, train_states[comm.rank], comm, recorder, checkpoints)
        finally:
            recorder.close()
        return train_states[comm.rank].replica

    run_threads(experiment.ranks, body)
    return seen


TOGETHER = [
    "native",
    "ring",
    "ring:bucket_bytes=64",
    "tree",
    "mesh",
    "ring:codec=half",
    "ring:codec=bfloat16",
    "ring:codec=int8",
    "ring:codec=sign",
    "ring:codec=(top_k:ratio=0.1)",
    "ring:codec=(random_k:ratio=0.1)",
    "ring:codec=(power_sgd:rank=1)",
    "ring:codec=(power_sgd:rank=1,factors=int8)",
    "ps:mode=sync",
    "ps:mode=sync,servers=2,codec=(top_k:ratio=0.1)",
    "local_sgd:period=1",
    "hierarchical:site_size=2,across=ring",
    "switch:at=3,mode=sync",
]


@pytest.mark.parametrize("strategy", TOGETHER)
def test_all_leave_out_the_step_of_one(tmp_path: Path, strategy: str) -> None:
    seen = watch(strategy, bad_on_one_rank(blobs()), tmp_path, steps=12)
    for rank in range(3):
        # Servers that send differences catch up with what they still owe, also when there is nothing new.
        if strategy != "ps:mode=sync,servers=2,codec=(top_k:ratio=0.1)":
            assert torch.equal(seen[rank][BAD_STEP - 1], seen[rank][BAD_STEP - 2]), "the bad step changed something"
        moved = [not torch.equal(seen[rank][i], seen[rank][i - 1]) for i in range(1, 12) if i != BAD_STEP - 1]
        assert all(moved), "good steps changed nothing"
        assert bool(torch.isfinite(seen[rank][-1]).all())
        if "ps" not in strategy or "codec" not in strategy:
            assert torch.equal(seen[rank][-1], seen[0][-1])
    (event,) = [event for rank in range(3) for event in events(tmp_path, rank, "non_finite")]
    assert (event["rank"], event["step"], event["layer"], event["value"]) == (BAD_RANK, BAD_STEP, "2.bias", "nan")


@pytest.mark.parametrize(
    "strategy",
    [
        "ring",
        "ring:bucket_bytes=64",
        "ring:codec=(top_k:ratio=0.1)",
        "ps:mode=sync",
        "hierarchical:site_size=2,across=ring",
    ],
)
def test_all_leave_out_the_step_of_one_whose_loss_is_no_number(tmp_path: Path, strategy: str) -> None:
    seen = watch(strategy, bad_on_one_rank(blobs(), in_loss=True), tmp_path, steps=8)
    for rank in range(3):
        assert torch.equal(seen[rank][BAD_STEP - 1], seen[rank][BAD_STEP - 2]), "the bad step changed something"
        assert not torch.equal(seen[rank][BAD_STEP], seen[rank][BAD_STEP - 1])
        assert torch.equal(seen[rank][-1], seen[0][-1]) and bool(torch.isfinite(seen[rank][-1]).all())
    (event,) = [event for rank in range(3) for event in events(tmp_path, rank, "non_finite")]
    assert (event["rank"], event["step"], event["layer"], event["value"]) == (BAD_RANK, BAD_STEP, None, "nan")


@pytest.mark.parametrize(
    "strategy", ["local_sgd:period=3", "diloco:period=6", "gossip", "ps:mode=async", "gossip:algorithm=asynchronous"]
)
def test_where_steps_are_ones_own_only_that_rank_leaves_it_out(tmp_path: Path, strategy: str) -> None:
    seen = watch(strategy, bad_on_one_rank(blobs()), tmp_path, steps=20)
    assert all(bool(torch.isfinite(parameters).all()) for rank in seen for parameters in rank)
    assert not torch.equal(seen[0][BAD_STEP - 1], seen[0][BAD_STEP - 2])
    assert [event["step"] for event in events(tmp_path, BAD_RANK, "non_finite")] == [BAD_STEP]


def events(run: Path, rank: int, kind: str) -> list[dict[str, Any]]:
    lines = event_file(run, rank).read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


@pytest.mark.parametrize("strategy", ["ring", "ps:mode=sync", "ring:codec=(power_sgd:rank=1)"])
def test_the_end_and_the_last_checkpoint_is_from_before(tmp_path: Path, strategy: str) -> None:
    bad_from = 7
    workload = bad_on_one_rank(blobs(), tuple(range(bad_from, 100)))
    with pytest.raises(DivergedError, match=r"nan in the gradient of 2.bias on rank 1 at step 10, and none of 4 steps"):
        watch(strategy, workload, tmp_path, steps=50, non_finite_steps_in_a_row=4)
    good = [checkpoint for checkpoint in list_checkpoints(tmp_path) if checkpoint.problem() is None]
    # That of step 6 is not among them: the first step from there on could not be used.
    assert [checkpoint.order[1] for checkpoint in good] == [2, 4]


def test_without_any_checkpoint_before_the_state_before_the_bad_steps_is_kept(tmp_path: Path) -> None:
    workload = bad_on_one_rank(blobs(), tuple(range(20, 100)))
    with pytest.raises(DivergedError):
        watch("ring", workload, tmp_path, steps=50, checkpoints=Checkpoints(), non_finite_steps_in_a_row=4)
    (kept,) = list_checkpoints(tmp_path)
    assert kept.problem() is None and kept.order[1] == 20
    clean = tmp_path / "clean"
    clean.mkdir()
    seen = watch("ring", blobs(), clean, steps=19, checkpoints=Checkpoints())
    assert torch.equal(read_part(kept, 0).tensors["parameters"], seen[0][-1])
