"""A peer that fails in the middle of an exchange: what a replica goes on from without it is what it had before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from minga import Transport
from minga.comm import Done, Pending, all_reduce_mean
from minga.errors import PeerLost
from minga.model.replica import Replica
from minga.strategies import Gossip, Hierarchical, Strategy
from minga.strategies.capabilities import common_model
from minga.strategies.push_sum import PushSum


class Fails(Pending):
    def wait(self, patience: float = 1.0) -> int:
        raise PeerLost("rank 2 is gone", rank=2)


class FailsAfter(Transport):
    """Some messages come, full of sevens; then the peer is gone."""

    def __init__(self, rank: int, messages: int) -> None:
        self.rank, self.size, self.hosts = rank, 3, ["here"] * 3
        self._left = messages

    def isend(self, tensor: Tensor, to: int, tag: int = 0) -> Pending:
        return Done(self.rank)

    def ireceive(self, tensor: Tensor, source: int | None, tag: int = 0) -> Pending:
        tensor.fill_(7)  # also of the last one a part may have come
        self._left -= 1
        return Done(0) if self._left >= 0 else Fails()

    def now(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        pass

    def start(self, function: Callable[[Transport], None]) -> Pending:
        function(self)
        return Done(self.rank)


class Mean(Strategy):
    """With the default end."""

    def step(self, replica: Replica, comm: Transport) -> None:
        replica.update()


def at_the_end(replica: Replica, comm: Transport) -> None:
    Mean().finish(replica, comm)


def at_the_end_of_pushing(replica: Replica, comm: Transport) -> None:
    replica.in_sync = True
    gossip = Gossip(algorithm="push_sum")
    gossip.start(replica, comm)
    pushed: PushSum = replica.state["gossip"]
    pushed._mass, pushed._weight = 2 * replica.parameters, 2.0
    gossip.finish(replica, comm)


def while_it_is_tested(replica: Replica, comm: Transport) -> None:
    with common_model(Mean(), replica, comm, since=0):
        pytest.fail("nobody came to that")


def inside_a_site(replica: Replica, comm: Transport) -> None:
    replica.step = 1
    replica.progress.begin(0, 3)
    Hierarchical(site_size=3)._hand_on(replica, comm)


def by_hand(replica: Replica, comm: Transport) -> None:
    all_reduce_mean(comm, replica.parameters)


EXCHANGES = [at_the_end, at_the_end_of_pushing, while_it_is_tested, inside_a_site, by_hand]


@pytest.mark.parametrize("messages", [0, 1])
@pytest.mark.parametrize("exchange", EXCHANGES)
def test_parameters_are_what_they_were(exchange: Callable[[Replica, Transport], None], messages: int) -> None:
    model = nn.Linear(5, 3)
    replica = Replica(model, torch.optim.SGD(model.parameters(), lr=0.1))
    before = replica.parameters.clone()
    with pytest.raises(PeerLost, match="rank 2 is gone"):
        exchange(replica, FailsAfter(rank=1, messages=messages))
    assert torch.equal(replica.parameters, before)
