"""BatchNorm over the samples of all ranks equals that of one process with all of them."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from minga.comm.collectives import tree
from minga.comm.threads import run_threads
from minga.comm.transport import Transport
from minga.errors import PeerWrong, WorkloadError, WrongLength
from minga.model.replica import Replica
from minga.model.sync_batch_norm import channels_of_batch_norms, messages_of, normalising_together
from minga.runs.experiment import Cluster, Experiment, Training
from minga.runs.workload import Workload
from minga.testing.problems import blobs
from minga.testing.worlds import train_in_threads
from minga.training import whole_batch


class _ComputedAgain(nn.Module):
    """Keeps nothing of its layers for backward, which computes them once more."""

    def __init__(self, *, use_reentrant: bool) -> None:
        super().__init__()
        self.first, self.use_reentrant = nn.Linear(4, 6), use_reentrant
        self.layers = nn.Sequential(nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3))

    def forward(self, inputs: Tensor) -> Any:
        return checkpoint(self.layers, self.first(inputs), use_reentrant=self.use_reentrant)


class _ByItsOwnCall(nn.Module):
    """No layer, but the function below all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.batch_norm(self.linear(inputs), None, None, None, None, True, 0.1, 1e-5, False)


MAKERS: dict[str, Callable[[], nn.Module]] = {
    "1d": lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)),
    "2d": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 2, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten()
    ),
    "2d, channels last in memory": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 2, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten()
    ).to(memory_format=torch.channels_last),
    "without scale and shift": lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, affine=False), nn.Tanh()),
    "plain averages": lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, momentum=None), nn.Tanh()),
    "no statistics": lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, track_running_stats=False), nn.Tanh()),
    "of the inputs, and twice": lambda: nn.Sequential(
        nn.BatchNorm1d(4), nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.BatchNorm1d(6)
    ),
    "computed again in backward": lambda: _ComputedAgain(use_reentrant=False),
    "computed again by a backward of its own": lambda: _ComputedAgain(use_reentrant=True),
    "by its own call": _ByItsOwnCall,
}
SHARES = ([3, 4, 1], [5, 5, 5], [1, 1, 1])


def _gradients(model: nn.Module) -> Tensor:
    return torch.cat([tensor.grad.reshape(-1) for tensor in model.parameters() if tensor.grad is not None])


def _loss(model: nn.Module, inputs: Tensor) -> Tensor:
    return (model(inputs) ** 3).sum(dim=1).mean()


def _buffers(model: nn.Module) -> Tensor:
    return torch.cat([torch.zeros(1, dtype=torch.float64), *(each.double().reshape(-1) for each in model.buffers())])


@pytest.mark.parametrize("shares", SHARES, ids=str)
@pytest.mark.parametrize("kind", MAKERS)
def test_gradients_and_statistics_are_those_of_one_process(kind: str, shares: list[int]) -> None:
    torch.manual_seed(0)
    whole = MAKERS[kind]().double()
    inputs = torch.randn(sum(shares), 4, dtype=torch.float64) * 2 + 3
    parts = torch.split(inputs, shares)
    models = [copy.deepcopy(whole) for _ in shares]

    def body(comm: Transport) -> Tensor:
        model, weight = models[comm.rank], shares[comm.rank] * comm.size / sum(shares)
        with normalising_together(model, lambda vector: tree(comm, vector), weight=weight):
            _loss(model, parts[comm.rank]).backward()
        mean = _gradients(model) * weight
        tree(comm, mean)
        return mean / comm.size

    found = run_threads(len(shares), body)
    _loss(whole, inputs).backward()
    for model, gradients in zip(models, found, strict=True):
        torch.testing.assert_close(gradients, _gradients(whole), rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(_buffers(model), _buffers(whole), rtol=1e-12, atol=1e-12)
        assert torch.equal(_buffers(model), _buffers(models[0]))


def test_a_large_mean_costs_single_precision_no_more_than_in_one_process() -> None:
    torch.manual_seed(0)
    norm, inputs = nn.BatchNorm1d(3), torch.randn(64, 3) + 1000
    exact = norm(inputs.double().float())
    copies = [copy.deepcopy(norm) for _ in range(2)]

    def body(comm: Transport) -> Tensor:
        with normalising_together(copies[comm.rank], lambda vector: tree(comm, vector), weight=1.0):
            outputs: Tensor = copies[comm.rank](inputs[32 * comm.rank : 32 * (comm.rank + 1)])
        return outputs

    torch.testing.assert_close(torch.cat(run_threads(2, body)), exact, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("parameters", [torch.float32, torch.bfloat16])
def test_half_precision_goes_through(parameters: torch.dtype) -> None:
    norm = nn.BatchNorm1d(3).to(parameters)
    copies = [copy.deepcopy(norm) for _ in range(2)]
    inputs = torch.randn(8, 3).bfloat16()

    def body(comm: Transport) -> Any:
        own = inputs[4 * comm.rank : 4 * (comm.rank + 1)].requires_grad_()
        with normalising_together(copies[comm.rank], lambda vector: tree(comm, vector), weight=1.0):
            outputs = copies[comm.rank](own)
            outputs.float().pow(3).sum().backward()
        return outputs.dtype, *(
            bool(torch.isfinite(each.grad).all()) for each in (own, *copies[comm.rank].parameters())
        )

    assert run_threads(2, body) == [(torch.bfloat16, True, True, True)] * 2


def test_who_does_not_train_is_left_alone() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3)).eval()

    def nobody(vector: Tensor) -> None:
        raise AssertionError("an evaluation adds up nothing")

    with normalising_together(model, nobody, weight=1.0):
        model(torch.randn(1, 3))


def test_layers_are_afterwards_what_they_were() -> None:
    """They are patched while backward runs, in case it computes them again."""
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.BatchNorm1d(3))
    patched = model[2].forward = lambda inputs: inputs * 2  # somebody's own
    with normalising_together(model, lambda vector: None, weight=1.0):
        _loss(model, torch.randn(5, 3)).backward()
    assert "forward" not in vars(model[1])
    assert model[2].forward is patched


def test_sums_of_different_layers_are_not_added_up() -> None:
    """As where blocks of a network are left out by chance; their sums may be as long as each other's."""
    models = [nn.ModuleList([nn.BatchNorm1d(3), nn.BatchNorm1d(3)]) for _ in range(2)]

    def body(comm: Transport) -> None:
        model = models[comm.rank]
        with normalising_together(model, lambda vector: tree(comm, vector), weight=1.0):
            model[comm.rank](torch.randn(4, 3))

    with pytest.raises(WorkloadError, match=r"different BatchNorm layers .* training\.batch_norm=each_node"):
        run_threads(2, body)


def test_who_sends_sums_of_another_length_uses_another_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is put out of the run for it: the next one would be."""

    def fails(comm: Transport, vector: Tensor) -> None:
        raise error

    monkeypatch.setattr(whole_batch, "direct", fails)
    error: PeerWrong = WrongLength("rank 1 sent 96 bytes where 104 were expected")
    with pytest.raises(WorkloadError, match=f"{error}: nodes use different BatchNorm layers"):
        _trained("ring")
    error = PeerWrong("rank 1 sent a frame of kind 99, which nobody knows")
    with pytest.raises(PeerWrong, match=str(error)):
        _trained("ring")


def test_messages_without_values_are_as_long_as_those_of_a_step() -> None:
    torch.manual_seed(0)
    model = MAKERS["2d"]()
    sent: list[tuple[int, torch.dtype]] = []
    with normalising_together(model, lambda vector: sent.append((len(vector), vector.dtype)), weight=1.0):
        _loss(model, torch.randn(5, 4)).backward()
    assert messages_of(channels_of_batch_norms(model), torch.float32) == sent


def _trained(strategy: str, workload: Workload | None = None, **training: Any) -> list[Replica]:
    experiment = Experiment(
        workload="blobs",
        strategy=strategy,  # type: ignore[arg-type]
        cluster=Cluster(nodes=3),
        training=Training(**{"epochs": 2, "drop_last": True, **training}),
    )
    return train_in_threads(experiment, workload or blobs(batch_norm=True))


def test_each_node_may_keep_to_its_own_samples() -> None:
    together, apart = _trained("ring"), _trained("ring", batch_norm="each_node")
    assert not torch.allclose(together[0].parameters, apart[0].parameters)
    # What auto reckons with, when it looks for what is fastest.
    assert (together[0].channels_of_batch_norms, apart[0].channels_of_batch_norms) == ((7,), ())


def test_nodes_that_train_alone_for_some_steps_keep_to_their_own_samples() -> None:
    usual, apart = _trained("local_sgd:period=4"), _trained("local_sgd:period=4", batch_norm="each_node")
    assert torch.equal(usual[0].parameters, apart[0].parameters)


def test_a_loss_that_is_no_number_on_one_rank_keeps_nobody_waiting() -> None:
    """The others are inside of backward then, where they need its sums."""
    workload = blobs(batch_norm=True)
    spoilt = workload.train[:][1].clone()
    spoilt[17] = 3

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        worth = math.inf if bool((targets == 3).any()) else 1.0
        return nn.functional.cross_entropy(outputs, targets.clamp(max=2)) * worth

    data = torch.utils.data.TensorDataset(workload.train[:][0], spoilt)
    replicas = _trained("ring", dataclasses.replace(workload, train=data, loss=loss))
    for replica in replicas:
        assert bool(torch.isfinite(replica.parameters).all())
        assert torch.equal(replica.parameters, replicas[0].parameters)
    assert not torch.equal(replicas[0].parameters, _trained("ring")[0].parameters)  # a step was left out
