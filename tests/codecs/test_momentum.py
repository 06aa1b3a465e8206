"""Momentum correction: momentum accumulates before the choice of what is sent, not after."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import nn

from minga import Cluster, Experiment, Training
from minga.codecs import Stream, TopK
from minga.errors import WorkloadError
from minga.model.replica import Replica
from minga.testing import train_in_threads
from minga.testing.problems import blobs


def plain_momentum(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def train(strategy: str, steps: int = 60) -> Replica:
    experiment = Experiment(
        workload="blobs", strategy=strategy, cluster=Cluster(nodes=3), training=Training(steps=steps)
    )
    return train_in_threads(experiment, blobs(optimizer=plain_momentum))[0]


def loss(replica: Replica) -> float:
    inputs, targets = blobs().train[:]
    with torch.no_grad():
        return float(torch.nn.functional.cross_entropy(replica.model(inputs), targets))


@pytest.mark.parametrize("strategy", ["ring", "ps:mode=sync,servers=2"])
@pytest.mark.parametrize("codec", ["top_k", "random_k"])
def test_sending_everything_is_sgd_with_momentum(strategy: str, codec: str) -> None:
    joint = "," if ":" in strategy else ":"
    corrected = train(f"{strategy}{joint}codec=({codec}:ratio=1,momentum_correction=true)")
    usual = train(strategy)
    assert (corrected.parameters - usual.parameters).abs().max() < 1e-12


@pytest.mark.parametrize("strategy", ["ring:", "ps:mode=sync,servers=2,", "ps:mode=async,"])
def test_it_learns_from_a_tenth_of_the_values(strategy: str) -> None:
    assert loss(train(f"{strategy}codec=(top_k:ratio=0.1,momentum_correction=true)", steps=120)) < 0.3


@pytest.mark.parametrize("options", [{"nesterov": True}, {"dampening": 0.5}])
def test_other_kinds_of_momentum_are_refused_and_not_left_out_silently(options: dict[str, Any]) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, **options)
    with pytest.raises(WorkloadError, match=f"{next(iter(options))}.*leave momentum_correction out"):
        Replica(model, optimizer).hand_over_momentum()
    assert optimizer.param_groups[0]["momentum"] == 0.9


def test_what_has_waited_starts_anew_and_what_has_not_goes_on() -> None:
    codec = TopK(ratio=0.5, momentum_correction=True)
    stream = Stream(((2,),), momentum=0.5)
    for gradient, sent in [
        ([4.0, 1.0], [4, 0]),
        ([4.0, 1.0], [6, 0]),  # the first goes on with its momentum: 0.5 * 4 + 4
        ([0.0, 1.0], [0, 4.25]),  # the second has waited: 1 + (0.5 * 1 + 1) + (0.5 * 1.5 + 1)
        ([0.0, 1.0], [4.5, 0]),  # the first has 3 + 1.5, the second began anew with 1
    ]:
        decoded = torch.empty(2)
        codec.decode(codec.encode(torch.tensor(gradient), stream), decoded, stream)
        assert decoded.tolist() == sent
    assert stream.residual is not None
    assert stream.residual.tolist() == [0, 1]
