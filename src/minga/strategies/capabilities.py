"""What few strategies do, each a small protocol of its own; and how others ask for it.

class Mine(Strategy, Checkpointed): ...         # it has exchanges under way that a checkpoint must wait for
pause(strategy, replica, comm)                  # by the checkpoint manager: nothing happens where nothing is needed
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from minga.base.config import FieldError
from minga.base.lazy import Tensor
from minga.base.spec import describe
from minga.codecs.base import Codec
from minga.comm import Transport
from minga.comm.collectives import average_in_place
from minga.errors import UnsupportedError
from minga.model.memory import Memory, recall, remember
from minga.model.replica import Replica
from minga.strategies.base import Strategy

__all__ = [
    "Agreeing",
    "Checkpointed",
    "Delegating",
    "Periodic",
    "Remembering",
    "Serving",
    "active",
    "agreed_facts",
    "announce_checkpoint",
    "averaged_replicas",
    "check_nodes",
    "codecs_of",
    "contribution",
    "go_on_with",
    "memory_of",
    "pause",
    "restore_memory",
    "resume",
    "serve",
    "trainers",
]


class Delegating(ABC):
    """Another strategy is in charge for a while; what is asked of this one is asked of that one."""

    @abstractmethod
    def active(self, replica: Replica) -> Strategy:
        """Who is in charge now."""


class Serving(ABC):
    """Some ranks hold parameters for others instead of training."""

    @abstractmethod
    def serve(self, replica: Replica, comm: Transport) -> None:
        """Run by ranks that serve, until the others are done."""

    @abstractmethod
    def trainers(self, replica: Replica, comm: Transport) -> int:
        """How many ranks train now: ranks 0 to this. The others serve."""


class Checkpointed(ABC):  # noqa: B024  (each has its default: whoever inherits it overrides what it needs)
    """There is more to a checkpoint than `replica.state`."""

    def pause(self, replica: Replica, comm: Transport) -> None:  # noqa: B027
        """Before a checkpoint, on all ranks in lock step: wait for exchanges under way, so that none is.

        What they bring is kept and taken in when its time comes: a checkpoint changes nothing in training.
        """

    def resume(self, replica: Replica, comm: Transport) -> None:  # noqa: B027
        """After a checkpoint was put back, on all ranks, before they go on."""

    def announce_checkpoint(self, replica: Replica, comm: Transport, number: int, *, leaving: bool) -> None:  # noqa: B027
        """This rank, which trains, has taken its part of a checkpoint: notify its servers, which it may be leaving."""

    def contribution(self, replica: Replica) -> Tensor:
        """This rank's part in the mean that all would agree on now, as long as `parameters`."""
        return replica.parameters


class Remembering(ABC):
    """Its memory is not simply `replica.state`."""

    @abstractmethod
    def memory(self, replica: Replica) -> Memory:
        """What is remembered between steps."""

    @abstractmethod
    def recall(self, replica: Replica, memory: Memory) -> None:
        """After `start`, on as many ranks as before: go on from a memory."""


class Agreeing(ABC):
    """All ranks have agreed on facts that hold on when some of them go or come."""

    @abstractmethod
    def agreed_facts(self, replica: Replica) -> dict[str, Any]:
        """Numbers, strings, lists."""

    @abstractmethod
    def go_on_with(self, replica: Replica, facts: dict[str, Any]) -> None:
        """Before `start`, on all ranks that go on together."""


class Periodic(ABC):
    """Most steps exchange nothing."""

    @abstractmethod
    def exchanges(self, replica: Replica) -> bool:
        """Whether the step under way may change parameters by what other ranks know; if unsure, yes."""


def active(strategy: Strategy, replica: Replica) -> Strategy:
    """The strategy that is in charge now."""
    while isinstance(strategy, Delegating):
        strategy = strategy.active(replica)
    return strategy


def _capable(strategy: Strategy, replica: Replica, kind: Any) -> Any:
    """The strategy, or the one in charge, if it can do that."""
    while not isinstance(strategy, kind):
        if not isinstance(strategy, Delegating):
            return None
        strategy = strategy.active(replica)
    return strategy


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


def trainers(strategy: Strategy, replica: Replica, comm: Transport) -> int:
    """How many ranks train now: ranks 0 to this."""
    serving: Serving | None = _capable(strategy, replica, Serving)
    return comm.size if serving is None else serving.trainers(replica, comm)


def serve(strategy: Strategy, replica: Replica, comm: Transport) -> None:
    """On a rank that does not train, until the others are done."""
    serving: Serving | None = _capable(strategy, replica, Serving)
    if serving is None:
        raise UnsupportedError(f"{describe(strategy)} has no servers")
    serving.serve(replica, comm)


def pause(strategy: Strategy, replica: Replica, comm: Transport) -> None:
    """Before a checkpoint."""
    if (checkpointed := _capable(strategy, replica, Checkpointed)) is not None:
        checkpointed.pause(replica, comm)


def resume(strategy: Strategy, replica: Replica, comm: Transport) -> None:
    """After a checkpoint was put back."""
    if (checkpointed := _capable(strategy, replica, Checkpointed)) is not None:
        checkpointed.resume(replica, comm)


def announce_checkpoint(strategy: Strategy, replica: Replica, comm: Transport, number: int, *, leaving: bool) -> None:
    """This rank has taken its part of a checkpoint."""
    if (checkpointed := _capable(strategy, replica, Checkpointed)) is not None:
        checkpointed.announce_checkpoint(replica, comm, number, leaving=leaving)


def contribution(strategy: Strategy, replica: Replica) -> Tensor:
    """This rank's part in the mean of all."""
    checkpointed: Checkpointed | None = _capable(strategy, replica, Checkpointed)
    return replica.parameters if checkpointed is None else checkpointed.contribution(replica)


def agreed_facts(strategy: Strategy, replica: Replica) -> dict[str, Any]:
    """What all ranks have agreed on."""
    return strategy.agreed_facts(replica) if isinstance(strategy, Agreeing) else {}


def go_on_with(strategy: Strategy, replica: Replica, facts: dict[str, Any]) -> None:
    """Before `start`, when ranks have gone or come."""
    if isinstance(strategy, Agreeing):
        strategy.go_on_with(replica, facts)


def memory_of(strategy: Strategy, replica: Replica) -> Memory:
    """What is remembered between steps: all of `replica.state`."""
    return strategy.memory(replica) if isinstance(strategy, Remembering) else remember(replica.state)


def restore_memory(strategy: Strategy, replica: Replica, memory: Memory) -> None:
    """After `start`: it becomes `replica.state`."""
    if isinstance(strategy, Remembering):
        strategy.recall(replica, memory)
    else:
        replica.state = recall(memory, replica.state)


@contextlib.contextmanager
def averaged_replicas(strategy: Strategy, replica: Replica, together: Transport) -> Iterator[None]:
    """Around an evaluation on the way: meanwhile every replica is what all would agree on now, their mean."""
    if not active(strategy, replica).traits.replicas_differ or together.size == 1:
        yield
        return
    own = replica.parameters.clone()
    try:
        replica.parameters.copy_(contribution(strategy, replica))
        average_in_place(together, replica.parameters)  # a peer may fail in the middle of it
        yield
    finally:
        replica.parameters.copy_(own)
