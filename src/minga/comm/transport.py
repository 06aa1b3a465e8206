"""What a strategy may use to talk to other ranks, whatever carries the messages.

    comm.isend(vector, to=1); comm.receive(buffer, source=1); comm.start(lambda background: ...)

A transport moves 1-D tensors between ranks. It has the clock too, so that a simulated transport can run
the same program in virtual time. Matching is by (source, tag), in the order of sending. As with gloo and MPI,
`isend` may finish only when the other side has posted its receive, and the tensor must not be changed
before `wait()` has returned. Every wait has a deadline.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from minga.base.lazy import Tensor
from minga.errors import UnsupportedError

__all__ = ["Done", "Group", "MergeRecorder", "Pending", "Sent", "Transport", "collective"]


class Pending(ABC):
    """Something under way. `wait()` returns when it is done, or raises `PeerLost` or `PeerTimeout`."""

    @abstractmethod
    def wait(self, patience: float = 1.0) -> int:
        """Wait for the end; the rank that sent, for a receive (otherwise the rank itself).

        `patience` multiplies the deadline, for waits that are long when all is well: a server's for workers that
        are testing the model, a fast worker's at the end for the slowest one.
        """

    @property
    def done(self) -> bool:
        """Whether `wait()` would return or raise at once; known of jobs that `Transport.start` runs."""
        raise UnsupportedError(f"a {type(self).__name__} can't tell whether it is done")

    def cancel(self) -> None:
        """Give up a receive that nobody will send to any more."""
        raise UnsupportedError(f"a {type(self).__name__} can't be cancelled")


@dataclass(eq=False)
class Done(Pending):
    """Nothing to wait for: an empty message, a group of one."""

    source: int

    def wait(self, patience: float = 1.0) -> int:
        return self.source

    @property
    def done(self) -> bool:
        return True

    def cancel(self) -> None:
        pass


class MergeRecorder(Protocol):
    """Who wants to know what collectives have merged: a replica's `Progress`."""

    def averaged(self, vector: Tensor, ranks: Sequence[int]) -> None:
        """`vector` has become its mean over these ranks."""


class Sent(NamedTuple):
    """What a rank has sent: payload only, without the headers of TCP and below."""

    bytes: int
    messages: int


class Transport(ABC):
    """Messages between `size` ranks, of which this is `rank`."""

    rank: int
    size: int
    hosts: Sequence[str]
    """The host of each rank, for algorithms that treat neighbours differently."""
    merges: MergeRecorder | None = None
    """Who is notified by collectives over this transport of what they have averaged; set by the training loop."""

    @abstractmethod
    def isend(self, tensor: Tensor, to: int, tag: int = 0) -> Pending:
        """Start sending a contiguous tensor to rank `to`."""

    @abstractmethod
    def ireceive(self, tensor: Tensor, source: int | None, tag: int = 0) -> Pending:
        """Start receiving into a contiguous tensor, from `source` or (None) from whoever sends first."""

    @abstractmethod
    def now(self) -> float:
        """Seconds on this transport's clock."""

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass on this transport's clock."""

    @abstractmethod
    def start(self, function: Callable[[Transport], None]) -> Pending:
        """Run `function(background)` while the caller goes on; jobs run one after the other, in order.

        `background` reaches the same ranks with messages of its own, which never meet those of the caller.
        """

    def all_reduce(self, tensor: Tensor, ranks: Sequence[int] | None = None) -> Pending:
        """The backend's own all-reduce (sum, in place) over `ranks` (default: all)."""
        raise UnsupportedError(f"{type(self).__name__} has no all-reduce of its own; use 'ring' or another")

    def all_gather(self, buffers: Sequence[Tensor], ranks: Sequence[int] | None = None) -> None:
        """The buffer in this rank's place goes to all `ranks` (default: all), theirs come into their places.

        The buffers are of one size, and in the order of `ranks`.
        """
        members = self.members(ranks)
        place = members.index(self.rank)
        # Each begins with the rank after it, so that not all send to the same one at once.
        others = [(place + shift) % len(members) for shift in range(1, len(members))]
        pending = [self.ireceive(buffers[other], members[other]) for other in others]
        pending += [self.isend(buffers[place], members[other]) for other in others]
        for message in pending:
            message.wait()

    def carry_out(self, name: str, vector: Tensor, ranks: Sequence[int] | None = None) -> Sent | None:
        """A collective in a way of the transport's own: what this rank has sent for it. None: by its messages."""
        return None

    def close(self) -> None:  # noqa: B027  (most transports have nothing to close)
        """Give back sockets and threads."""

    def send(self, tensor: Tensor, to: int, tag: int = 0) -> None:
        self.isend(tensor, to, tag).wait()

    def receive(self, tensor: Tensor, source: int | None, tag: int = 0, *, patience: float = 1.0) -> int:
        """Receive into `tensor`; returns the rank that sent it."""
        return self.ireceive(tensor, source, tag).wait(patience)

    def members(self, ranks: Sequence[int] | None) -> Sequence[int]:
        """Some ranks, or (None) all of them."""
        return range(self.size) if ranks is None else ranks

    def group(self, ranks: Sequence[int]) -> Transport:
        """The same messages among some of the ranks, renumbered from 0 in the order given."""
        if list(ranks) == list(range(self.size)):
            return self
        return Group(self, ranks)


class Group(Transport):
    """Some ranks of another transport, renumbered from 0."""

    def __init__(self, parent: Transport, ranks: Sequence[int]) -> None:
        assert parent.rank in ranks, f"rank {parent.rank} is not in the group {list(ranks)}"
        self._parent = parent
        self._ranks = list(ranks)
        self.rank = self._ranks.index(parent.rank)
        self.size = len(self._ranks)
        self.hosts = [parent.hosts[rank] for rank in self._ranks]
        self.merges = None if parent.merges is None else _MergesInGroup(parent.merges, self._ranks)

    def isend(self, tensor: Tensor, to: int, tag: int = 0) -> Pending:
        return self._parent.isend(tensor, self._ranks[to], tag)

    def ireceive(self, tensor: Tensor, source: int | None, tag: int = 0) -> Pending:
        actual = None if source is None else self._ranks[source]
        return _InGroup(self._parent.ireceive(tensor, actual, tag), self._ranks)

    def now(self) -> float:
        return self._parent.now()

    def sleep(self, seconds: float) -> None:
        self._parent.sleep(seconds)

    def start(self, function: Callable[[Transport], None]) -> Pending:
        return self._parent.start(lambda background: function(Group(background, self._ranks)))

    def all_reduce(self, tensor: Tensor, ranks: Sequence[int] | None = None) -> Pending:
        return self._parent.all_reduce(tensor, self._of_parent(ranks))

    def all_gather(self, buffers: Sequence[Tensor], ranks: Sequence[int] | None = None) -> None:
        self._parent.all_gather(buffers, self._of_parent(ranks))

    def carry_out(self, name: str, vector: Tensor, ranks: Sequence[int] | None = None) -> Sent | None:
        return self._parent.carry_out(name, vector, self._of_parent(ranks))

    def _of_parent(self, ranks: Sequence[int] | None) -> list[int]:
        """Its ranks in the parent's numbering."""
        return [self._ranks[rank] for rank in self.members(ranks)]


@dataclass
class _MergesInGroup:
    """Notifies the parent's recorder in the parent's numbering."""

    inner: MergeRecorder
    ranks: list[int]

    def averaged(self, vector: Tensor, ranks: Sequence[int]) -> None:
        self.inner.averaged(vector, [self.ranks[rank] for rank in ranks])


@dataclass(eq=False)
class _InGroup(Pending):
    """A receive whose source has the group's numbering."""

    inner: Pending
    ranks: list[int]

    def wait(self, patience: float = 1.0) -> int:
        return self.ranks.index(self.inner.wait(patience))

    @property
    def done(self) -> bool:
        return self.inner.done

    def cancel(self) -> None:
        self.inner.cancel()


def collective(function: Callable[[Transport, Tensor], None]) -> Callable[[Transport, Tensor], None]:
    """A function of all ranks over a transport, which may carry it out in a way of its own."""

    @functools.wraps(function)
    def run(comm: Transport, vector: Tensor) -> None:
        if comm.carry_out(function.__name__, vector) is None:
            function(comm, vector)

    return run
