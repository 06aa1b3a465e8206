"""Stochastic gradient push: gossip along one-way edges, where nobody knows how many will send to it."""

from __future__ import annotations

from minga.base.lazy import Tensor, torch
from minga.comm import Transport
from minga.model.replica import Replica
from minga.strategies.decentralized_sgd import swap
from minga.strategies.gossip_graphs import Neighbours
from minga.strategies.gossip_rounds import GossipInRounds

__all__ = ["PushSum"]

_VECTOR, _WEIGHT = 0, 1


class PushSum(GossipInRounds):
    """Stochastic gradient push (Assran et al., arXiv:1811.10792).

    A rank keeps a part of its vector x and pushes the rest, and does the same with a weight w that began as 1. Where
    more is pushed to a rank than it pushes away, x is too large, and w by the same factor: x/w is right. That is what
    gradients are computed with and what `replica.parameters` holds; x and w live here. Neither the sum of all x nor
    that of all w changes in a round.
    """

    remembers = (*GossipInRounds.remembers, "_mass", "_weight", "_change_of_weight")

    _mass: Tensor | None = None
    """x; None until the first step."""

    _weight: float = 1.0
    """w"""

    _change_of_weight: float = 0.0

    def update(self, replica: Replica) -> None:
        if self._mass is None:
            replica.update()
            self._mass = replica.parameters.clone()
            return
        # The step was computed with x/w, and moves x.
        before = self._mass / self._weight
        replica.update()
        self._mass.add_(replica.parameters).sub_(before)
        if self._weight != 1.0:
            torch.div(self._mass, self._weight, out=replica.parameters)

    def contribution(self, replica: Replica) -> Tensor:
        return replica.parameters if self._mass is None else self._mass

    def exchange(self, vector: Tensor, comm: Transport, neighbours: Neighbours) -> None:
        stream = self.streams("gossip")
        share = 1 / (len(neighbours.receivers) + 1)
        pushed, weight = vector * share, torch.tensor([self._weight * share], dtype=torch.float64)
        encoded = self.codec.encode_once(pushed, stream)
        landings = {sender: self.codec.encoded_like(vector, stream) for sender in neighbours.senders}
        weights = {sender: torch.empty_like(weight) for sender in neighbours.senders}
        swap(comm, encoded, landings, neighbours, _VECTOR)
        swap(comm, weight, weights, neighbours, _WEIGHT)
        # What leaves here is what arrives there, also where a codec has rounded it.
        self.codec.decode(encoded, pushed, stream)
        self._change = pushed.mul_(-len(neighbours.receivers))
        arrived = torch.empty_like(vector)
        for landing in landings.values():
            self.codec.decode(landing, arrived, stream)
            self._change.add_(arrived)
        self._change_of_weight = sum(map(float, weights.values())) - float(weight) * len(neighbours.receivers)

    def take_in(self, replica: Replica) -> None:
        assert self._mass is not None
        self._mass.add_(self._change)
        self._weight += self._change_of_weight
        torch.div(self._mass, self._weight, out=replica.parameters)
