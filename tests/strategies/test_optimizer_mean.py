"""Where local steps end, optimizers agree."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from minga.comm import Transport
from minga.comm.threads import run_threads
from minga.model.replica import Replica
from minga.strategies.delta import average_optimizers


def moved(comm: Transport, *, idle: int | None = None) -> Tensor:
    """Own steps, except on an idle rank; the mean; then a step with gradients that all have: how far it leads."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    replica = Replica(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    if comm.rank != idle:
        replica.gradients.fill_(float(comm.rank + 1))
        replica.update()
    average_optimizers(replica, comm)
    before = replica.parameters.clone()
    replica.gradients.fill_(1.0)
    replica.update()
    return replica.parameters - before


def test_the_mean_of_all_momenta_goes_on() -> None:
    first, second = run_threads(2, moved)
    torch.testing.assert_close(first, second)
    torch.testing.assert_close(first, torch.full_like(first, -0.1 * (0.9 * 1.5 + 1)))


def test_who_has_none_has_all_begin_anew() -> None:
    for change in run_threads(3, lambda comm: moved(comm, idle=1)):
        torch.testing.assert_close(change, torch.full_like(change, -0.1))
