"""Optimizers that clip gradients do it as torch's own functions, whatever the strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import Optimizer

from minga import clipped
from minga.errors import WorkloadError
from minga.model.replica import Replica
from minga.runs.experiment import Cluster, Experiment, Training
from minga.simulate.profile import OptimizerFacts
from minga.testing.problems import adam, blobs, sgd_with_momentum
from minga.testing.strategies import train_alone
from minga.testing.worlds import train_in_threads

Parameters = Iterable[nn.Parameter]

BY_TORCH: dict[str, Callable[[list[nn.Parameter], float], Any]] = {
    "norm": clip_grad_norm_,
    "norm_of_each": lambda parameters, most: [clip_grad_norm_(each, most) for each in parameters],
    "value": clip_grad_value_,
}
MOST = {"norm": 0.3, "norm_of_each": 0.15, "value": 0.02}
POINTS = torch.linspace(-2, 2, 40, dtype=torch.float64).view(8, 5)
BEGUN = train_alone(blobs(optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.0)), steps=1).parameters


def clipping(way: str) -> Callable[[Parameters], Optimizer]:
    return lambda parameters: clipped(sgd_with_momentum(parameters), **{way: MOST[way]})


def trained(strategy: str, nodes: int, optimizer: Callable[[Parameters], Optimizer]) -> Replica:
    experiment = Experiment(
        workload="blobs",
        strategy=strategy,  # type: ignore[arg-type]
        cluster=Cluster(nodes=nodes),
        training=Training(steps=40, total_batch=24),
    )
    return train_in_threads(experiment, blobs(optimizer=optimizer))[0]


@pytest.mark.parametrize("way", BY_TORCH)
@pytest.mark.parametrize("make", [sgd_with_momentum, adam])
@pytest.mark.parametrize("keep_optimizer", [False, True])
def test_it_is_what_torchs_functions_do_before_a_step(
    make: Callable[[Parameters], Optimizer], way: str, keep_optimizer: bool
) -> None:
    torch.manual_seed(0)
    by_hand, ours = blobs().model(), blobs().model()
    ours.load_state_dict(by_hand.state_dict())
    optimizer = make(by_hand.parameters())
    replica = Replica(ours, clipped(make(ours.parameters()), **{way: MOST[way]}), keep_optimizer=keep_optimizer)
    clips = []
    for factor in (0.01, 3.0, 1.0, 0.0, 10.0):  # also gradients that are short enough, and none at all
        optimizer.zero_grad()
        (factor * by_hand(POINTS).square().mean()).backward()
        before = [parameter.grad.clone() for parameter in by_hand.parameters()]
        BY_TORCH[way](list(by_hand.parameters()), MOST[way])
        clips.append(any(not old.equal(now.grad) for old, now in zip(before, by_hand.parameters(), strict=True)))
        optimizer.step()
        replica.compute_gradients(lambda factor=factor: factor * ours(POINTS).square().mean())
        replica.update()
    assert clips[:2] == [False, True]
    for own, other in zip(ours.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", BY_TORCH)
@pytest.mark.parametrize("strategy", ["ring", "ps:mode=sync", "ps:mode=sync,servers=2"])
def test_several_nodes_clip_the_mean_of_their_gradients(strategy: str, way: str) -> None:
    alone = train_alone(blobs(optimizer=clipping(way)), steps=40, batch=24)
    together = trained(strategy, 3, clipping(way))
    difference = float((together.parameters - alone.parameters).abs().max())
    if "servers=2" in strategy and way == "norm":
        assert 1e-6 < difference < 0.5  # each server knows the norm of its own part
    else:
        assert difference < 1e-12
    free = train_alone(blobs(), steps=40, batch=24)
    assert not torch.allclose(free.parameters, alone.parameters, atol=1e-2)


@pytest.mark.parametrize("strategy", ["local_sgd:period=4", "ps:mode=async", "gossip", "adaptive", "diloco:period=4"])
def test_other_strategies_clip_what_they_apply(strategy: str) -> None:
    def moved(optimizer: Callable[[Parameters], Optimizer]) -> float:
        replica = trained(strategy, 3, optimizer)
        return float((replica.parameters - BEGUN).norm())

    nearly_nothing = moved(lambda parameters: clipped(torch.optim.SGD(parameters, lr=0.05), norm=1e-4))
    assert 0 < nearly_nothing < 0.01 < 0.5 < moved(lambda parameters: torch.optim.SGD(parameters, lr=0.05))


def test_profiles_name_the_optimizer_itself() -> None:
    model = blobs().model()
    replica = Replica(model, clipped(adam(model.parameters()), norm=1.0))
    facts = OptimizerFacts.of(replica)
    assert (facts.name, facts.adaptive) == ("Adam", True)


def test_momentum_can_not_be_handed_over() -> None:
    model = blobs().model()
    with pytest.raises(WorkloadError, match="leave clipping or momentum_correction out"):
        Replica(model, clipped(sgd_with_momentum(model.parameters()), norm=1.0)).hand_over_momentum()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "one of norm, norm_of_each or value, not by nothing"),
        ({"norm": 1.0, "value": 1.0}, "not by norm and value"),
        ({"norm": 0.0}, "norm should be above 0, not 0.0"),
        ({"value": float("nan")}, "value should be above 0, not nan"),
    ],
)
def test_wrong_settings_are_told(given: dict[str, float], words: str) -> None:
    model = blobs().model()
    with pytest.raises(ValueError, match=words):
        clipped(adam(model.parameters()), **given)


def test_nothing_is_clipped_twice() -> None:
    model = blobs().model()
    with pytest.raises(ValueError, match="clips gradients already"):
        clipped(clipped(adam(model.parameters()), norm=1.0), norm=1.0)


def test_the_loss_of_a_closure_comes_first() -> None:
    weight = nn.Parameter(torch.ones(1))
    optimizer = clipped(torch.optim.SGD([weight], lr=1.0), value=0.25)

    def closure() -> float:
        loss = 5 * weight.sum()
        loss.backward()
        return float(loss.detach())

    assert optimizer.step(closure) == 5.0
    assert float(weight.detach()) == 0.75
