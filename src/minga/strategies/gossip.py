"""Gossip: replicas exchange parameters with a few neighbours instead of with everybody.

minga train digits --nodes 8 --strategy gossip:algorithm=dpsgd,graph=exponential
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from minga.base.config import FieldError
from minga.base.lazy import Tensor
from minga.base.spec import describe
from minga.comm import Transport, all_reduce_mean
from minga.model.replica import Replica
from minga.strategies.asynchronous_gossip import AsynchronousGossip
from minga.strategies.base import Strategy, Traits, check_least, refuse_momentum_correction
from minga.strategies.capabilities import Checkpointed, Periodic
from minga.strategies.decentralized_sgd import DecentralizedSGD, PubliclyCopied
from minga.strategies.gossip_graphs import mixing_round, pushing_round
from minga.strategies.gossip_rounds import GossipInRounds
from minga.strategies.push_sum import PushSum

__all__ = ["Gossip"]

_KEY = "gossip"


@dataclass(frozen=True, kw_only=True)
class Gossip(Strategy, Checkpointed, Periodic):
    """Every replica trains by itself and mixes its parameters with those of a few neighbours.

    dpsgd: neighbours become their mean in every round (Lian et al., arXiv:1705.09056); with a codec that leaves much
    out, by way of public copies (CHOCO-SGD, Koloskova et al., arXiv:1902.00340). push_sum: along one-way edges
    (stochastic gradient push, Assran et al., arXiv:1811.10792). asynchronous: in pairs and without rounds, so that a
    slow node holds nobody up (AD-PSGD, Lian et al., arXiv:1710.06952).

    Mixing never changes the mean of all replicas, which is what the run ends with. A rank that fails is missed by its
    neighbours at the deadline, and named by them.
    """

    algorithm: Literal["dpsgd", "push_sum", "asynchronous"] = field(default="dpsgd", metadata={"always_shown": True})
    """dpsgd: with neighbours, in rounds. push_sum: along one-way edges. asynchronous: in pairs, nobody waits."""

    graph: Literal["ring", "exponential", "random"] = "exponential"
    """Who is a neighbour. ring: next ranks. exponential: those at 1, 2, 4, ... in turn. random: drawn in each round."""

    period: int = 1
    """Local steps between two exchanges."""

    overlap: bool = True
    """Exchange while the next steps are computed, and take the outcome in afterwards; asynchronous always does."""

    consensus_step: float | None = None
    """For graph=ring with a lossy codec: how much of the way to the neighbours' copies a round goes (default: 1 for
    codecs that round, 0.1 for those that leave most out)."""

    def check(self) -> None:
        check_least(self, period=1)
        if self.algorithm == "asynchronous" and not self.overlap:
            raise FieldError(("overlap",), "false is for dpsgd and push_sum: asynchronous never waits for an exchange")
        self._check_codec()
        if self.consensus_step is not None:
            if not self._copies:
                raise FieldError(
                    ("consensus_step",),
                    "is for algorithm=dpsgd, graph=ring with a lossy codec such as half; leave it out",
                )
            if not 0 < self.consensus_step <= 1:
                raise FieldError(("consensus_step",), f"should be above 0 and at most 1, not {self.consensus_step:g}")

    def _check_codec(self) -> None:
        refuse_momentum_correction(self.codec)
        if not (self.codec.faithful or self._copies):
            raise FieldError(
                ("codec",),
                f"{describe(self.codec)} leaves too much out for parameters that meet each other only now and then, as "
                f"with algorithm={self.algorithm}, graph={self.graph}; it works with algorithm=dpsgd, graph=ring, "
                "where neighbours stay; everything works with none, half, bfloat16 and int8",
            )

    @property
    def _copies(self) -> bool:
        """Whether neighbours stay and a codec loses something, so that public copies are possible and useful."""
        return self.codec.changes_form and self.algorithm == "dpsgd" and self.graph == "ring"

    @property
    def traits(self) -> Traits:
        return Traits(
            lockstep=self.algorithm != "asynchronous",
            hides_exchanges=self.overlap,
            period=self.period,
            partners="neighbours",
            epochs_factor=lambda nodes: 1.0 + 0.01 * math.sqrt(nodes),
        )

    def exchanges(self, replica: Replica) -> bool:
        # A pushed weight makes a rank's own steps differ from those it would do alone.
        return self.algorithm != "dpsgd" or replica.step % self.period == 0

    def start(self, replica: Replica, comm: Transport) -> None:
        super().start(replica, comm)
        # Who meets whom follows from what all ranks share by now, and differs from run to run as they do.
        seed = replica.shared_seed()
        if self.traits.lockstep:
            replica.state[_KEY] = self._rounds(replica, comm, seed)
        else:
            replica.state[_KEY] = AsynchronousGossip(replica, comm, self.graph, self.period, self.codec, seed)

    def _rounds(self, replica: Replica, comm: Transport, seed: int) -> GossipInRounds:
        kind = PushSum if self.algorithm == "push_sum" else PubliclyCopied if self._copies else DecentralizedSGD
        topology = partial(pushing_round if kind is PushSum else mixing_round, self.graph, seed)
        made = kind(
            topology=topology,
            period=self.period,
            overlap=self.overlap,
            codec=self.codec,
            streams=replica.stream,
            start=replica.step,
        )
        if isinstance(made, PubliclyCopied):
            usual = 1.0 if self.codec.faithful else 0.1
            made.consensus_step = usual if self.consensus_step is None else self.consensus_step
            made.know(replica.parameters, comm.rank, topology(comm.rank, comm.size, 0))
        return made

    def _side(self, replica: Replica) -> AsynchronousGossip | GossipInRounds:
        side: AsynchronousGossip | GossipInRounds = replica.state[_KEY]
        return side

    def step(self, replica: Replica, comm: Transport) -> None:
        self._side(replica).step(replica, comm)

    def pause(self, replica: Replica, comm: Transport) -> None:
        self._side(replica).pause(replica, comm)

    def announce_checkpoint(self, replica: Replica, comm: Transport, number: int, *, leaving: bool) -> None:
        self._side(replica).announce_checkpoint(replica, comm, number, leaving=leaving)

    def resume(self, replica: Replica, comm: Transport) -> None:
        self._side(replica).resume(replica, comm)

    def contribution(self, replica: Replica) -> Tensor:
        return self._side(replica).contribution(replica)

    def finish(self, replica: Replica, comm: Transport) -> None:
        self._side(replica).settle(replica, comm)
        # With pushed weights, it is the mean of the masses that training has reached.
        mean = self.contribution(replica).clone()
        all_reduce_mean(comm, mean)
        replica.parameters.copy_(mean)
        if self.traits.lockstep:
            replica.progress.merge(replica.step)
