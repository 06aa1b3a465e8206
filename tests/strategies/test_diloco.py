"""DiLoCo's outer optimizer, against torch's own; whose turn it is when parameters are exchanged in fragments."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from minga.comm.threads import run_threads
from minga.comm.transport import Transport
from minga.model.replica import Replica
from minga.strategies import DiLoCo

RANKS, STEPS = 3, 22
LENGTHS = (4, 6, 5)
LENGTH = sum(LENGTHS)


def gradient(rank: int, step: int) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(LENGTH, generator=generator, dtype=torch.float64)


def history(strategy: DiLoCo) -> Tensor:
    """Parameters of all ranks after each step, from zeros, with gradients that are given: ranks x steps x length."""

    def body(comm: Transport) -> Tensor:
        model = nn.ParameterList(nn.Parameter(torch.zeros(length, dtype=torch.float64)) for length in LENGTHS)
        replica = Replica(model, torch.optim.SGD(model.parameters(), lr=1.0))
        strategy.start(replica, comm)
        seen = []
        for step in range(1, STEPS + 1):
            replica.step = step
            replica.gradients.copy_(gradient(comm.rank, step))
            strategy.step(replica, comm)
            seen.append(replica.parameters.clone())
        strategy.finish(replica, comm)
        return torch.stack(seen)

    return torch.stack(run_threads(RANKS, body))


def by_hand(strategy: DiLoCo) -> Tensor:
    """The same in one place: torch's SGD moves the common point along the replicas' mean movement."""
    common = nn.Parameter(torch.zeros(LENGTH, dtype=torch.float64))
    outer = torch.optim.SGD(
        [common],
        lr=strategy.outer_learning_rate,
        momentum=strategy.outer_momentum,
        nesterov=strategy.outer_momentum > 0,
    )
    replicas = torch.zeros(RANKS, LENGTH, dtype=torch.float64)
    moved: Tensor | None = None
    seen = []
    for step in range(1, STEPS + 1):
        replicas -= torch.stack([gradient(rank, step) for rank in range(RANKS)])
        if step % strategy.period == 0:
            moved = replicas - common.detach()
        if moved is not None and step % strategy.period == strategy.overlap:
            before = common.detach().clone()
            common.grad = -moved.mean(0)
            outer.step()
            # What was learnt since the exchange began stays, on top of the new common point.
            replicas += (common.detach() - before) - moved
            moved = None
        seen.append(replicas.clone())
    return torch.stack(seen).transpose(0, 1)


@pytest.mark.parametrize("overlap", [0, 1, 3])
@pytest.mark.parametrize(("rate", "momentum"), [(0.7, 0.9), (1.0, 0.5), (0.4, 0.0)])
def test_the_outer_optimizer_is_sgd_with_nesterov_momentum(rate: float, momentum: float, overlap: int) -> None:
    strategy = DiLoCo(period=4, outer_learning_rate=rate, outer_momentum=momentum, overlap=overlap)
    torch.testing.assert_close(history(strategy), by_hand(strategy), rtol=0, atol=1e-12)


def test_a_full_step_without_momentum_is_the_mean() -> None:
    seen = history(DiLoCo(period=4, outer_learning_rate=1.0, outer_momentum=0.0))
    mean = -torch.stack([gradient(rank, step) for rank in range(RANKS) for step in range(1, 5)]).sum(0) / RANKS
    torch.testing.assert_close(seen[:, 3], mean.expand(RANKS, LENGTH), rtol=0, atol=1e-12)


@pytest.mark.parametrize("overlap", [0, 1])
def test_fragments_take_turns_evenly_over_the_period(overlap: int) -> None:
    seen = history(DiLoCo(period=6, fragments=3, overlap=overlap))
    given = torch.stack([torch.stack([gradient(rank, step) for step in range(1, STEPS + 1)]) for rank in range(RANKS)])
    change = seen - torch.cat([torch.zeros(RANKS, 1, LENGTH, dtype=torch.float64), seen[:, :-1]], 1) + given
    turns = [
        [step + 1 for step in range(STEPS) if bool((part[:, step].abs() > 1e-9).any())]
        for part in torch.split(change, list(LENGTHS), dim=2)
    ]
    alone = [[2, 8, 14, 20], [4, 10, 16, 22], [6, 12, 18]]
    assert turns == [[step + overlap for step in steps if step + overlap <= STEPS] for steps in alone]
