"""What few strategies do, each a small protocol of its own; and how others ask for it.

class Mine(Strategy, Checkpointed): ...                              # a checkpoint must wait for its exchanges
capability(strategy, replica, Checkpointed).pause(replica, comm)     # by the checkpoint manager, of any strategy

What these methods do by default is right for all strategies that say nothing.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, TypeVar

from minga.base.config import FieldError
from minga.base.lazy import Tensor
from minga.base.spec import describe
from minga.codecs.base import Codec
from minga.codecs.half import Half
from minga.comm import Transport
from minga.comm.collectives import average_in_place
from minga.errors import UnsupportedError
from minga.model.memory import Memory, recall, remember
from minga.model.replica import Replica
from minga.strategies.base import Strategy

__all__ = [
    "Agreeing",
    "Anchored",
    "Checkpointed",
    "Delegating",
    "Periodic",
    "Remembering",
    "Serving",
    "active",
    "capability",
    "check_nodes",
    "codecs_of",
    "common_model",
    "trainers",
]


class Delegating(ABC):
    """Another strategy is in charge for a while; what is asked of this one is asked of that one."""

    @abstractmethod
    def active(self, replica: Replica) -> Strategy:
        """Who is in charge now."""


class Serving:
    """Some ranks hold parameters for others instead of training."""

    def serve(self, replica: Replica, comm: Transport) -> None:
        """Run by ranks that serve, until the others are done."""
        raise UnsupportedError(f"{type(self).__name__} has no servers")

    def trainers(self, replica: Replica, comm: Transport) -> int:
        """How many ranks train now: ranks 0 to this. The others serve."""
        return comm.size


class Checkpointed:
    """There is more to a checkpoint than `replica.state`."""

    def pause(self, replica: Replica, comm: Transport) -> None:
        """Before a checkpoint, on all ranks in lock step: wait for exchanges under way, so that none is.

        What they bring is kept and taken in when its time comes: a checkpoint changes nothing in training.
        """

    def resume(self, replica: Replica, comm: Transport) -> None:
        """After a checkpoint was put back, on all ranks, before they go on."""

    def announce_checkpoint(self, replica: Replica, comm: Transport, number: int, *, leaving: bool) -> None:
        """This rank, which trains, has taken its part of a checkpoint: notify its servers, which it may be leaving."""

    def contribution(self, replica: Replica) -> Tensor:
        """This rank's part in the mean that all would agree on now, as long as `parameters`."""
        return replica.parameters


class Remembering:
    """Its memory is not simply `replica.state`."""

    def memory(self, replica: Replica) -> Memory:
        """What is remembered between steps."""
        return remember(replica.state)

    def recall(self, replica: Replica, memory: Memory) -> None:
        """After `start`, on as many ranks as before: go on from a memory."""
        replica.state = recall(memory, replica.state)


class Agreeing:
    """All ranks have agreed on facts that hold on when some of them go or come."""

    def agreed_facts(self, replica: Replica) -> dict[str, Any]:
        """Numbers, strings, lists."""
        return {}

    def go_on_with(self, replica: Replica, facts: dict[str, Any]) -> None:
        """Before `start`, on all ranks that go on together."""


class Anchored:
    """Its replicas part and agree again, and each of them remembers where they last agreed."""

    def anchor(self, replica: Replica, comm: Transport, since: int) -> Tensor | None:
        """On all ranks in lock step: these parameters, the same bits on every rank; None if all that is older.

        `since`: what was agreed on at this step or before is too old.
        """
        return None


class Periodic:
    """Most steps exchange nothing."""

    def exchanges(self, replica: Replica) -> bool:
        """Whether the step under way may change parameters by what other ranks know; if unsure, yes."""
        return True


def active(strategy: Strategy, replica: Replica) -> Strategy:
    """The strategy that is in charge now."""
    while isinstance(strategy, Delegating):
        strategy = strategy.active(replica)
    return strategy


Capability = TypeVar("Capability")


def capability(strategy: Strategy, replica: Replica, kind: type[Capability]) -> Capability:
    """The strategy, or the one in charge, if it can do that; otherwise what is right for one that can't."""
    while not isinstance(strategy, kind):
        if not isinstance(strategy, Delegating):
            return kind()
        strategy = strategy.active(replica)
    return strategy


def trainers(strategy: Strategy, replica: Replica, comm: Transport) -> int:
    """How many ranks train now: ranks 0 to this."""
    return capability(strategy, replica, Serving).trainers(replica, comm)


def check_nodes(strategy: Strategy, nodes: int) -> None:
    """`FieldError` if this many nodes can't work."""
    traits = strategy.traits
    if traits.most_nodes is not None and nodes > traits.most_nodes:
        most = traits.most_nodes
        few = "one node alone" if most == 1 else f"for {most} nodes at most"
        raise FieldError(
            ("strategy",),
            f"{describe(strategy)!r} is {few}, not {nodes}; choose another, such as 'ring', or nodes={most}",
        )
    if nodes < traits.fewest_nodes:
        what = f"{traits.servers} servers beside workers need" if traits.servers_beside_workers else "it needs"
        raise FieldError(
            ("strategy",), f"{describe(strategy)!r} can't work on {nodes} nodes: {what} at least {traits.fewest_nodes}"
        )


def codecs_of(strategy: Strategy) -> tuple[Codec, ...]:
    """All that it may encode with."""
    return strategy.traits.codecs or (strategy.codec,)


@contextlib.contextmanager
def common_model(strategy: Strategy, replica: Replica, together: Transport, *, since: int) -> Iterator[None]:
    """Around an evaluation on the way: meanwhile every replica is what all agree on.

    That is the last point where they did, which each of them has, so that nobody waits for a network. Where there was
    none after step `since`, or nobody remembers it, it is the mean of all replicas, exchanged in 16 bits.
    """
    if not active(strategy, replica).traits.replicas_differ or together.size == 1:
        yield
        return
    own = replica.parameters.clone()
    try:
        anchor = capability(strategy, replica, Anchored).anchor(replica, together, since)
        if anchor is not None:
            replica.parameters.copy_(anchor)
        else:
            replica.parameters.copy_(capability(strategy, replica, Checkpointed).contribution(replica))
            average_in_place(together, replica.parameters, codec=Half())  # a peer may fail in the middle of it
        yield
    finally:
        replica.parameters.copy_(own)
