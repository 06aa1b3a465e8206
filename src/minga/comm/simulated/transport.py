"""A rank's view of a simulated world."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence

from torch import Tensor

from minga.comm.collectives.ring import ring
from minga.comm.simulated.engine import Engine, VirtualPending
from minga.comm.simulated.world import Message, SimulatedWorld
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
        self._queues = {_BESIDE: _Jobs(self, _BESIDE), _NATIVE: _Jobs(self, _NATIVE)}

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
        return self._queues[_BESIDE].add(lambda: function(self._on(_BESIDE)))

    def all_reduce(self, tensor: Tensor, ranks: Sequence[int] | None = None) -> Pending:
        """As gloo and NCCL do it: a ring."""
        members = self.members(ranks)
        if len(members) == 1 or tensor.numel() == 0:
            return Done(self.rank)
        return self._queues[_NATIVE].add(lambda: ring(Group(self._on(_NATIVE), members), tensor.detach()))

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


class _Jobs:
    """What a rank runs beside its training, one after the other."""

    def __init__(self, transport: SimulatedTransport, channel: int) -> None:
        self._world = transport.world
        self._name = f"rank {transport.rank}, {'beside' if channel == _BESIDE else 'all-reduce'}"
        self._owner = transport.world.ranks[transport.rank]
        self._waiting: deque[_Job] = deque()
        self._busy = False

    def add(self, function: Callable[[], None]) -> Pending:
        engine = self._world.engine
        job = _Job(engine, function, self._owner.number)
        self._waiting.append(job)
        engine.at(engine.task.clock, self._begin)
        return job

    def _begin(self) -> None:
        if self._busy or not self._waiting:
            return
        self._busy = True
        job = self._waiting.popleft()
        engine = self._world.engine

        def body() -> None:
            job.run()
            engine.at(engine.task.clock, self._end, job)

        engine.spawn(body, name=self._name, owner=self._owner, clock=engine.now, beside=True)

    def _end(self, job: _Job) -> None:
        self._busy = False
        if self._waiting:
            self._world.engine.at(self._world.engine.now, self._begin)
        job.complete()


class _Job(VirtualPending):
    """Something that runs beside a rank's training."""

    def __init__(self, engine: Engine, function: Callable[[], None], rank: int) -> None:
        super().__init__(engine)
        self._function = function
        self._rank = rank
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._function()
        except Exception as error:  # whoever waits for the job gets it
            self._error = error

    def wait(self, patience: float = 1.0) -> int:
        self.wait_in_words(lambda: "for its own background job")
        if self._error is not None:
            raise self._error
        return self._rank
