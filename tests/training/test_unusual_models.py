"""Models, optimizers, data and moments that are not the usual ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint
from torch.utils.data import TensorDataset

from minga import Cluster, Experiment, Training, Workload
from minga.base.config import FieldError
from minga.comm.threads import run_threads
from minga.comm.transport import Transport
from minga.errors import WorkloadError
from minga.model.buffers import agree_on_buffers
from minga.model.replica import Replica
from minga.testing import train_in_threads
from minga.testing.problems import blobs


def train(
    workload: Workload, strategy: str, nodes: int, *, timeout_seconds: float = 30.0, **training: Any
) -> list[Replica]:
    speeds = training.pop("speeds", ())
    experiment = Experiment(
        workload=workload.name,
        strategy=strategy,
        cluster=Cluster(nodes=nodes, speeds=speeds),
        training=Training(**training),
    )
    return train_in_threads(experiment, workload, timeout_seconds=timeout_seconds)


def test_a_switch_at_the_very_last_step() -> None:
    replicas = train(blobs(), "switch:at=10", 2, steps=10, timeout_seconds=5)
    assert torch.equal(replicas[0].parameters, replicas[1].parameters)


def test_workers_that_end_further_apart_than_the_deadline() -> None:
    replicas = train(blobs(), "ps:mode=async", 2, steps=20, speeds=(1.0, 0.01), timeout_seconds=0.3)
    assert torch.equal(replicas[0].parameters, replicas[1].parameters)


def test_servers_wait_while_workers_test_longer_than_the_deadline() -> None:
    def slow_metric(outputs: Tensor, targets: Tensor) -> Tensor:
        import time

        time.sleep(0.5)
        return torch.ones(len(targets))

    workload = dataclasses.replace(blobs(), metrics={"slow": slow_metric})
    assert train(workload, "ps:mode=sync", 2, epochs=2, timeout_seconds=0.3)[0].step == 20


def test_attention_masks_stay_infinite() -> None:
    def body(comm: Transport) -> Tensor:
        model = nn.Module()
        model.register_buffer("mask", torch.full((3, 3), -torch.inf).triu(1))
        agree_on_buffers(model, comm)
        return model.get_buffer("mask")

    for mask in run_threads(2, body):
        assert torch.equal(mask, torch.full((3, 3), -torch.inf).triu(1))


class Counting(torch.optim.SGD):
    """Keeps a count in its parameter groups, as schedule-free optimizers do."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)
        for group in self.param_groups:
            group["count"] = 0

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["count"] += 1
            group["lr"] = 0.1 / group["count"]
        return super().step(closure)


def test_optimizers_that_keep_state_in_their_groups() -> None:
    def moved(make_replica: bool) -> Tensor:
        model = nn.Linear(1, 1)
        with torch.no_grad():
            model.weight.zero_()
        optimizer: Optimizer = Counting(model.parameters())
        replica = Replica(model, optimizer) if make_replica else None
        for _ in range(3):
            if replica is not None:
                replica.compute_gradients(lambda: model.weight.sum())
                replica.update()
            else:
                optimizer.zero_grad()
                model.weight.sum().backward()
                optimizer.step()
        return model.weight.detach().clone()

    torch.testing.assert_close(moved(True), moved(False))


def test_gradients_in_several_pieces_are_refused() -> None:
    layer = nn.Linear(5, 5).double()
    head = nn.Linear(5, 3).double()

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = layer, head

        def forward(self, inputs: Tensor) -> Tensor:
            hidden = checkpoint(self.layer, inputs.requires_grad_(), use_reentrant=True)
            result: Tensor = self.head(checkpoint(self.layer, hidden, use_reentrant=True))
            return result

    with pytest.raises(WorkloadError, match=r"in several pieces.*use_reentrant=False"):
        train(dataclasses.replace(blobs(), model=Twice), "ring", 1, steps=2)


def test_frozen_batch_norm_stays_in_its_mode_after_evaluations() -> None:
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(5).double().eval()
            self.head = nn.Linear(5, 3).double()

        def forward(self, inputs: Tensor) -> Tensor:
            result: Tensor = self.head(self.norm(inputs))
            return result

    replica = train(dataclasses.replace(blobs(), model=Frozen), "ring", 2, epochs=3)[0]
    assert not replica.model.norm.training  # type: ignore[union-attr]
    assert replica.model.head.training  # type: ignore[union-attr]


def test_batch_norm_with_a_last_batch_of_one_sample_each() -> None:
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double()

    workload = dataclasses.replace(blobs(samples=36), model=model, batch=8)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        train(workload, "ring", 4, epochs=1, batch_norm="each_node")
    assert train(workload, "ring", 4, epochs=1)[0].step == 2  # over all of them there are four
    assert train(workload, "ring", 4, epochs=2, drop_last=True)[0].step == 2


def test_a_plateau_is_seen_with_more_nodes_than_samples() -> None:
    replicas = train(blobs(samples=3), "switch:window=2,patience=2", 4, steps=12)
    assert replicas[0].notes.get("switched_after", 99) > 6  # the loss does fall at first; a NaN would end that at 6


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "loss of every sample": (
        {"loss": lambda outputs, targets: nn.functional.cross_entropy(outputs, targets, reduction="none")},
        r"the loss has shape \(8,\)",
    ),
    "LBFGS": ({"optimizer": torch.optim.LBFGS}, "LBFGS"),
    "lazy layers": ({"model": lambda: nn.LazyLinear(3)}, "lazy layers"),
    "accuracy of a regression": (
        {"loss": lambda outputs, targets: outputs.square().mean(), "metrics": {"odd": lambda o, t: torch.ones(3, 3)}},
        r"metric 'odd' gives \(3, 3\)",
    ),
    "an optimizer with more than the model": (
        {"optimizer": lambda parameters: torch.optim.SGD([*parameters, nn.Parameter(torch.ones(2))], lr=0.1)},
        "1 parameters that are not the model's",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_can_not_work_is_told_in_words(name: str) -> None:
    changes, message = WRONG[name]
    with pytest.raises(WorkloadError, match=message):
        train(dataclasses.replace(blobs(), **changes), "ring", 2, steps=3)


def test_a_batch_of_three_parts_needs_a_predict() -> None:
    inputs, targets = blobs().train[:]
    workload = dataclasses.replace(blobs(), train=TensorDataset(inputs, targets, targets), test=None)
    with pytest.raises(WorkloadError, match=r"3 parts is not \(inputs, targets\): give the workload a predict"):
        train(workload, "ring", 2, steps=3)


def test_gpus_take_only_what_is_known_to_work_there() -> None:
    with pytest.raises(FieldError, match="on GPUs only"):
        Experiment(workload="digits", strategy="ring", cluster=Cluster(nodes=2, device="cuda"))
