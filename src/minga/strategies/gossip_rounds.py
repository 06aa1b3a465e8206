"""What gossip algorithms with rounds share: when to exchange, and how the exchange hides behind computing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from minga.base.lazy import Tensor
from minga.codecs import Codec, Stream
from minga.comm import Done, Pending, Transport
from minga.model.replica import Replica
from minga.strategies.capabilities import Checkpointed
from minga.strategies.gossip_graphs import Neighbours

__all__ = ["GossipInRounds"]


@dataclass(kw_only=True, eq=False)
class GossipInRounds(Checkpointed, ABC):
    """One rank's side of a gossip in which everybody takes part in round after round.

    What is mixed is its `contribution`. An exchange that overlaps sends this as it is at the end of a round and takes
    in, at the end of the next one, the change that this brought: what was computed meanwhile is added to it, and
    nothing is lost.
    """

    remembers: ClassVar[tuple[str, ...]] = ("_under_way", "_change")
    """What a checkpoint has of it; the rest follows from the configuration and the parameters at the beginning."""

    topology: Callable[[int, int, int], Neighbours]
    """From rank, number of ranks and number of the round to a rank's part in it."""
    period: int
    overlap: bool
    codec: Codec
    streams: Callable[[str], Stream]
    """The codec's memory of one kind of vector, by name."""
    start: int
    """The step after which these ranks train together."""
    _under_way: Pending | None = field(default=None, init=False)
    _change: Tensor = field(init=False)
    """What the last exchange brought."""

    def update(self, replica: Replica) -> None:
        """This rank's own step."""
        replica.update()

    @abstractmethod
    def exchange(self, vector: Tensor, comm: Transport, neighbours: Neighbours) -> None:
        """Send, receive, and keep the change that this brings; `vector` is left as it is."""

    @abstractmethod
    def take_in(self, replica: Replica) -> None:
        """Apply the change that the last exchange brought."""

    def step(self, replica: Replica, comm: Transport) -> None:
        if replica.info.weight != 1.0:
            replica.gradients.mul_(replica.info.weight)
        self.update(replica)
        if replica.step % self.period or comm.size == 1:
            return
        self.settle(replica, comm)
        number = replica.step // self.period
        neighbours = self.topology(comm.rank, comm.size, number)
        if self.overlap:
            vector = self.contribution(replica).clone()  # the next step changes it while it travels
            self._under_way = comm.start(lambda background: self.exchange(vector, background, neighbours))
            number -= 1  # the last round that was taken in
        else:
            self.exchange(self.contribution(replica), comm, neighbours)
            self.take_in(replica)
        rank, size = comm.rank, comm.size
        replica.progress.merge_when_asked(lambda: self._reached(rank, size, number))

    def _reached(self, rank: int, size: int, last: int) -> list[int]:
        """For each rank, the last step of its own that has come here by way of neighbours: found by going back."""
        steps, reached, number = [self.start] * size, {rank}, last
        while number * self.period > self.start and len(reached) < size:
            senders = {sender for member in reached for sender in self.topology(member, size, number).senders}
            for sender in senders - reached:
                steps[sender] = number * self.period
            reached |= senders
            number -= 1
        return steps

    def pause(self, replica: Replica, comm: Transport) -> None:
        if self._under_way is not None:
            self._under_way = Done(self._under_way.wait())

    def settle(self, replica: Replica, comm: Transport) -> None:
        """Wait for the exchange under way, and take it in."""
        if self._under_way is not None:
            self._under_way.wait()
            self._under_way = None
            self.take_in(replica)
