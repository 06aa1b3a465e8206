from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from minga.errors import WorkloadError
from minga.model.layout import Bucket
from minga.model.replica import Replica


def replica_of(model: nn.Module, **options: float) -> Replica:
    return Replica(model, torch.optim.SGD(model.parameters(), lr=0.1, **options))


def test_the_models_tensors_are_views_into_one_vector() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    before = [tensor.clone() for tensor in model.parameters()]
    replica = replica_of(model)
    assert replica.parameters.numel() == 3 * 4 + 4 + 4 * 2 + 2
    for tensor, old in zip(model.parameters(), before, strict=True):
        assert torch.equal(tensor, old)
    replica.parameters.fill_(7.0)
    assert all(bool((tensor == 7.0).all()) for tensor in model.parameters())
    replica.compute_gradients(lambda: model(torch.ones(1, 3)).sum())
    assert torch.equal(torch.cat([tensor.grad.reshape(-1) for tensor in model.parameters()]), replica.gradients)


def test_a_step_equals_torchs_own() -> None:
    torch.manual_seed(0)
    mine, theirs = nn.Linear(3, 2), nn.Linear(3, 2)
    theirs.load_state_dict(mine.state_dict())
    replica = replica_of(mine, momentum=0.9)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9)
    for step in range(5):
        inputs = torch.full((4, 3), 0.1 * step)
        replica.compute_gradients(lambda inputs=inputs: mine(inputs).square().mean())
        replica.update()
        optimizer.zero_grad()
        theirs(inputs).square().mean().backward()
        optimizer.step()
    torch.testing.assert_close(mine.weight, theirs.weight)


def test_tied_weights_are_one_part_of_the_vector() -> None:
    first, second = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    second.weight = first.weight
    assert replica_of(nn.Sequential(first, second)).parameters.numel() == 9


def test_frozen_layers_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    frozen = model[0].weight.clone()
    replica = replica_of(model)
    replica.compute_gradients(lambda: model(torch.ones(1, 2)).sum())
    replica.update()
    assert replica.parameters.numel() == 6
    assert torch.equal(model[0].weight, frozen)


def test_gradients_survive_a_users_zero_grad() -> None:
    model = nn.Linear(2, 1)
    replica = replica_of(model)
    for _ in range(2):
        replica.optimizer.zero_grad()  # drops the tensors' gradients
        replica.compute_gradients(lambda: model(torch.ones(1, 2)).sum())
        assert torch.equal(replica.gradients, torch.ones(3))


def test_buckets_become_ready_during_backward_from_the_last_layer_to_the_first() -> None:
    model = nn.Sequential(nn.Linear(10, 10), nn.Linear(10, 10), nn.Linear(10, 10))
    replica = replica_of(model)
    replica.cut_buckets(4 * 110)
    ready: list[tuple[int, bool]] = []

    def when_ready(bucket: Bucket) -> None:
        first_layer_is_still_empty = not bool(replica.gradients[:110].any())
        ready.append((bucket.index, first_layer_is_still_empty))

    replica.when_ready = when_ready
    replica.compute_gradients(lambda: model(torch.ones(1, 10)).sum())
    assert ready == [(0, True), (1, True), (2, False)]  # two went out before backward was done
    assert [bucket.places[0].name for bucket in replica.buckets] == ["2.weight", "1.weight", "0.weight"]


def test_layers_that_a_batch_did_not_use_are_announced_by_the_flush_in_order() -> None:
    used, unused = nn.Linear(4, 4), nn.Linear(4, 4)
    model = nn.ModuleList([used, unused])
    replica = replica_of(model)
    replica.cut_buckets(1)
    ready: list[int] = []
    replica.when_ready = lambda bucket: ready.append(bucket.index)
    replica.compute_gradients(lambda: used(torch.ones(1, 4)).sum())
    assert ready == []  # the unused last layer comes first, so everything waits for the flush
    replica.flush_buckets()
    assert ready == [0, 1, 2, 3]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number(value: float) -> None:
    model = nn.Linear(1, 1)
    replica = replica_of(model)
    replica.rank, replica.step = 3, 17
    before = replica.parameters.clone()
    replica.compute_gradients(lambda: model(torch.ones(1, 1)).sum() * value)
    assert replica.info.non_finite is not None and replica.info.non_finite.layer is None
    assert not bool(torch.isfinite(replica.gradients).any())  # so that whoever averages them sees it too
    replica.update()
    assert replica.info.skipped
    assert torch.equal(replica.parameters, before)
    replica.compute_gradients(lambda: model(torch.ones(1, 1)).sum())
    replica.update()
    assert replica.info.non_finite is None and not replica.info.skipped
    assert not torch.equal(replica.parameters, before)


def test_a_loss_that_does_not_depend_on_the_model() -> None:
    with pytest.raises(WorkloadError, match="does not depend on the model"):
        replica_of(nn.Linear(1, 1)).compute_gradients(lambda: torch.tensor(1.0))


def test_models_that_can_not_be_trained() -> None:
    with pytest.raises(WorkloadError, match="Flatten has no parameters to train"):
        Replica(nn.Flatten(), torch.optim.SGD([torch.zeros(1)], lr=0.1))
    mixed = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1).double())
    with pytest.raises(WorkloadError, match=r"several kinds \(torch.float32 on cpu, torch.float64 on cpu\)"):
        replica_of(mixed)
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    with pytest.raises(WorkloadError, match=r"does not know 2 parameters.*1\.weight"):
        Replica(model, torch.optim.SGD(model[0].parameters(), lr=0.1))


def test_steps_alone_are_longer_where_the_optimizer_divides_by_noise() -> None:
    def moved(make: Any, peers: int) -> float:
        model = nn.Linear(4, 1).double()
        replica = Replica(model, make(model.parameters()))
        replica.replicas = peers
        before = replica.parameters.clone()
        replica.gradients.fill_(3.0)
        replica.update(averaged=False)
        return float((before - replica.parameters).mean())

    adam, sgd = (lambda p: torch.optim.Adam(p, lr=0.1)), (lambda p: torch.optim.SGD(p, lr=0.1))
    assert moved(adam, 4) == pytest.approx(2 * moved(adam, 1))
    assert moved(sgd, 4) == pytest.approx(moved(sgd, 1)) == pytest.approx(0.3)


def test_a_replica_without_samples_does_not_move_alone() -> None:
    model = nn.Linear(4, 1)
    replica = Replica(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    replica.info.batch_fraction, before = 0.0, replica.parameters.clone()
    replica.gradients.fill_(3.0)
    replica.update(averaged=False)
    assert torch.equal(replica.parameters, before)


class Clamped(nn.Module):
    """Keeps its weights small, as some published models do: by giving the parameter another tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.inner.weight.data = self.inner.weight.data.clamp(-0.3, 0.3)
        outputs: torch.Tensor = self.inner(inputs)
        return outputs


def test_a_parameter_that_gets_another_tensor_in_forward_is_trained_on() -> None:
    torch.manual_seed(0)
    mine, theirs = Clamped(), Clamped()
    theirs.load_state_dict(mine.state_dict())
    replica, optimizer = replica_of(mine, momentum=0.9), torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9)
    for step in range(5):
        inputs = torch.full((4, 3), 0.5 * step)
        replica.compute_gradients(lambda inputs=inputs: (mine(inputs) - 3).square().mean())
        replica.update()
        optimizer.zero_grad()
        (theirs(inputs) - 3).square().mean().backward()
        optimizer.step()
    torch.testing.assert_close(mine.inner.weight, theirs.inner.weight)
    assert torch.equal(replica.parameters[:6], mine.inner.weight.detach().reshape(-1))


def test_a_model_whose_memory_is_laid_out_anew_is_trained_on() -> None:
    model = nn.Conv2d(3, 4, 3)
    replica = replica_of(model)
    model.to(memory_format=torch.channels_last)
    replica.compute_gradients(lambda: model(torch.ones(1, 3, 5, 5)).sum())
    replica.update()
    assert torch.equal(replica.parameters[: 4 * 27], model.weight.detach().reshape(-1))


def test_a_model_of_another_type_than_before_is_refused() -> None:
    model = nn.Linear(3, 2)
    replica = replica_of(model)
    model.double()
    with pytest.raises(WorkloadError, match=r"weight was \(2, 3\) torch.float32 on cpu when training began and is"):
        replica.compute_gradients(lambda: model(torch.ones(1, 3, dtype=torch.float64)).sum())
