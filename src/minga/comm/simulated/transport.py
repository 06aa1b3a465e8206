"""A rank's view of a simulated world."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from minga.comm.collectives.ring import ring
from minga.comm.simulated.engine import Engine, VirtualPending
from minga.comm.simulated.world import Message, Rank, SimulatedWorld
from minga.comm.transport import Done, Group, Pending, Sent, Transport

__all__ = ["SimulatedTransport"]

_MAIN, _BESIDE, _NATIVE, _GATHERING = 0, 1, 2, 3


class SimulatedTransport(Transport):
    """One rank of a `SimulatedWorld`; its clock is that of the task that asks."""

    def __init__(self, world: SimulatedWorld, rank: int) -> None:
        self.rank = rank
        self.size = world.size
        self.hosts = world.host_names
        self.world = world
        self._channel = _MAIN
        self._asked = False
        """Whether all that is sent is received soon, so that nobody has to say that it is ready."""
        owner = world.ranks[rank]
        self._jobs = _Jobs(world, owner, f"rank {rank}, beside")
        self._all_reduces = _Jobs(world, owner, f"rank {rank}, all-reduce")

    def isend(self, tensor: Tensor, to: int, tag: int = 0) -> Pending:
        if tensor.numel() == 0:
            return Done(self.rank)
        world, carrier = self.world, self.world.wires.carrier
        message = Message(world, tensor.detach(), self.rank, to, self._channel, tag, sends=True)
        message.eager = message.eager or self._asked
        clock = self._work_of(carrier.send_seconds + carrier.send_seconds_per_byte * tensor.nbytes)
        world.engine.at(clock, world.post_send, message)
        return message

    def ireceive(self, tensor: Tensor, source: int | None, tag: int = 0) -> Pending:
        if tensor.numel() == 0 and source is not None:
            return Done(source)
        world = self.world
        message = Message(world, tensor.detach(), self.rank, source, self._channel, tag, sends=False)
        world.engine.at(world.engine.task.clock, world.post_receive, message)
        return message

    def now(self) -> float:
        return self.world.now()

    def sleep(self, seconds: float) -> None:
        self.world.engine.task.clock += seconds

    def start(self, function: Callable[[Transport], None]) -> Pending:
        return self._jobs.add(lambda: function(self._on(_BESIDE)))

    def all_reduce(self, tensor: Tensor, ranks: Sequence[int] | None = None) -> Pending:
        """As gloo and NCCL do it: a ring."""
        members = self.members(ranks)
        if len(members) == 1 or tensor.numel() == 0:
            return Done(self.rank)
        return self._all_reduces.add(lambda: ring(Group(self._on(_NATIVE), members), tensor.detach()))

    def all_gather(self, buffers: Sequence[Tensor], ranks: Sequence[int] | None = None) -> None:
        # As over TCP: everybody is in the same call.
        gathering = self._on(_GATHERING)
        gathering._asked = True
        Transport.all_gather(gathering, buffers, ranks)

    def carry_out(self, name: str, vector: Tensor, ranks: Sequence[int] | None = None) -> Sent | None:
        """A long ring of vectors without values is priced as a whole."""
        if name != "ring" or not vector.is_meta:
            return None
        return self.world.rings.carry_out(self._channel, tuple(self.members(ranks)), self.rank, vector)

    def _work_of(self, seconds: float) -> float:
        """The caller has worked for so long; what its clock says then."""
        task = self.world.engine.task
        task.clock += seconds
        host = self.world.ranks[self.rank].host
        host.worked += seconds
        if task.beside:
            host.charged += seconds
        return task.clock

    def _on(self, channel: int) -> SimulatedTransport:
        """The same rank with messages of its own."""
        other = copy.copy(self)
        other._channel = 4 * self._channel + channel  # what a background job starts has a channel of its own too
        return other


@dataclass(eq=False)
class _Jobs:
    """What a rank runs beside its training, one after the other."""

    world: SimulatedWorld
    owner: Rank
    name: str
    waiting: deque[tuple[_Job, Callable[[], None]]] = field(default_factory=deque)
    busy: bool = False

    def add(self, function: Callable[[], None]) -> Pending:
        engine = self.world.engine
        job = _Job(engine, self.owner.number)
        self.waiting.append((job, function))
        engine.at(engine.task.clock, self._begin)
        return job

    def _begin(self) -> None:
        if self.busy or not self.waiting:
            return
        self.busy = True
        job, function = self.waiting.popleft()
        engine = self.world.engine

        def body() -> None:
            try:
                function()
            except Exception as error:  # whoever waits for the job gets it
                job.error = error
            engine.at(engine.task.clock, self._end, job)

        engine.spawn(body, name=self.name, owner=self.owner, clock=engine.now, beside=True)

    def _end(self, job: _Job) -> None:
        self.busy = False
        if self.waiting:
            self.world.engine.at(self.world.engine.now, self._begin)
        job.complete()


class _Job(VirtualPending):
    """Something that runs beside a rank's training."""

    def __init__(self, engine: Engine, rank: int) -> None:
        super().__init__(engine)
        self._rank = rank
        self.error: Exception | None = None

    def wait(self, patience: float = 1.0) -> int:
        self.wait_in_words(lambda: "for its own background job")
        if self.error is not None:
            raise self.error
        return self._rank
