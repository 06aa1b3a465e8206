"""One parameter server at work: it takes in gradients, updates its shard, and answers with parameters."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from minga.base.lazy import Tensor, torch
from minga.codecs import Codec, Stream
from minga.codecs.reference_copy import ReferenceCopy
from minga.comm import Pending, Transport
from minga.errors import PeerTimeout
from minga.model.replica import Replica
from minga.strategies.parameter_server.shard import Push, Shard, Update
from minga.strategies.parameter_server.state import ServerState
from minga.strategies.parameter_server.update_log import Period

if TYPE_CHECKING:
    from minga.strategies.parameter_server.strategy import ParameterServer

__all__ = ["KEY", "PATIENCE", "About", "Served", "Server", "ServerMemory", "Tag"]

KEY = "server"
# Servers receive nothing while workers test the model, and a fast worker waits at the end for the slowest one.
PATIENCE = 30.0


class Tag(IntEnum):
    """Of messages."""

    HEADER = 1
    GRADIENTS = 2
    PARAMETERS = 3


class About(IntEnum):
    """What a header is about: its first value. The second is a share or a checkpoint's number, the third the push's."""

    PUSH = 0
    FINISH = 1
    SAVE = 2
    LEAVE = 3
    DONE = 4


@dataclass
class Served:
    """What a server remembers of its workers, besides its shard."""

    version: int
    """Updates applied."""
    streams: list[Stream]
    """Of the codec, for each worker; empty where values travel as they are."""
    known: list[Tensor]
    """What each worker has of the parameters, where they are sent as differences."""


@dataclass
class ServerMemory:
    """In `replica.state`."""

    served: Served | None = None
    """Of a rank that serves, at the last checkpoint."""


class Server:
    """One server among the same workers: its shard, and what it knows of each of them."""

    def __init__(self, strategy: ParameterServer, replica: Replica, comm: Transport, part: slice) -> None:
        shapes = tuple(replica.layout.shapes(part.start, part.stop))
        # What a server has applied among other workers before is the truth.
        state = ServerState.of(replica)
        if state.shard is None or state.shard.part != part:
            state.shard = Shard(replica, part)
        shard = state.shard
        before: Served | None = replica.state[KEY].served if KEY in replica.state else None
        self._state = state
        self._replica = replica
        self._strategy = strategy
        self._codec: Codec = strategy.codec
        self._shard = shard
        self._log = state.log
        self._comm = comm
        self._workers = comm.size - strategy.servers
        self._names = [state.name_of(worker) for worker in range(self._workers)]
        self._period = state.period or Period(1, replica.step, {}, tuple(self._names))
        self._header = torch.empty(3 + len(shard.learning_rates), dtype=torch.float64)
        # Which of a worker's streams doesn't matter for decoding: only the shapes do.
        self._streams = [Stream(shapes, seed=worker, rank=comm.rank) for worker in range(self._workers)]
        self._inbox = [self._codec.encoded_like(shard.parameters, stream) for stream in self._streams]
        self._known: list[ReferenceCopy] = []
        """What each worker has of the parameters, where they are sent as differences."""
        if self._codec.changes_form:
            if before is not None:
                self._streams = before.streams
            known = before.known if before is not None else [shard.parameters.clone() for _ in self._streams]
            pairs = zip(known, self._streams, strict=True)
            self._known = [ReferenceCopy(copy, self._codec, stream) for copy, stream in pairs]
        self._coming: dict[int, Pending] = {}
        self._replies: dict[int, Pending] = {}
        self._clock = [0] * self._workers
        """Steps that each worker has pushed."""
        if before is not None:
            self._log.version = before.version
        self._seen = [self._log.version] * self._workers
        """The version that each worker computes with."""
        self._arrived: dict[int, Push] = {}
        """Workers whose gradient is not applied yet, and what it counts."""
        self._waiting: set[int] = set()
        self._finished: set[int] = set()
        self._leaving: set[int] = set()
        """Workers that were asked to stop, and have."""
        self._asked: dict[int, set[int]] = {}
        """Workers that want a checkpoint, by its number."""
        self.staleness: Counter[int] = Counter()
        """How many steps a worker was ahead of the slowest when it got its parameters."""
        self.updates_behind: Counter[int] = Counter()
        """How many updates lay between the parameters that a gradient was computed with and its own update."""

    def run(self) -> None:
        self._log.begin(self._shard, self._period)
        for worker in range(self._workers):
            self._expect(worker)
        while len(self._finished) < self._workers:
            worker = self._next_header()
            about = About(int(self._header[0]))
            if about in (About.SAVE, About.LEAVE):
                if about is About.LEAVE:
                    self._leaving.add(worker)
                self._save(worker, int(self._header[1]), leaving=about is About.LEAVE)
                self._answer()  # who waits for one that leaves would wait for ever
                continue
            if about is About.FINISH:
                self._finished.add(worker)
                self._coming.pop(worker).cancel()
            elif not self._take_in(worker):
                continue
            self._answer()
        for worker in range(self._workers):
            self._send_parameters(worker, as_they_are=True)
        for reply in self._replies.values():
            reply.wait()
        for _ in range(self._workers):
            self._next_header()  # it has everything from all servers

    def _take_in(self, worker: int) -> bool:
        """What a worker has pushed; False if it is here already."""
        self._coming.pop(worker).wait()
        fraction, number, *self._shard.learning_rates = self._header[1:].tolist()
        name = self._names[worker]
        if number <= self._log.book.last(name):
            self._replica.notes["refused"] = self._replica.notes.get("refused", 0) + 1
            self._expect(worker)
            self._send_parameters(worker)
            return False
        self._clock[worker] += 1
        behind = self._log.version - self._seen[worker]
        self.updates_behind[behind] += 1
        step = self._period.step + self._clock[worker]
        self._arrived[worker] = Push(name, int(number), step, self._share(behind, fraction))
        self._waiting.add(worker)
        return True

    def _save(self, worker: int, checkpoint: int, *, leaving: bool) -> None:
        """Keep this server's part once all workers have asked for it, if they still do."""
        asked = self._asked.setdefault(checkpoint, set())
        asked.add(worker)
        if asked | self._finished < set(range(self._workers)):
            return
        self._asked = {other: workers for other, workers in self._asked.items() if other > checkpoint}
        streams = self._streams if self._known else []
        served = Served(self._log.version, streams, [copy.known for copy in self._known])
        self._replica.state[KEY] = ServerMemory(served)
        self._state.save(checkpoint, leaving)

    def _expect(self, worker: int) -> None:
        # Posted before the worker pushes, so that its gradient travels at once.
        self._coming[worker] = self._comm.ireceive(self._inbox[worker], worker, Tag.GRADIENTS)

    def _next_header(self) -> int:
        try:
            return self._comm.receive(self._header, None, Tag.HEADER, patience=PATIENCE)
        except PeerTimeout as error:
            missing = sorted(set(range(self._workers)) - self._waiting - self._finished)
            raise PeerTimeout(
                f"server {self._comm.rank} misses rank {', '.join(map(str, missing))}: {error}"
            ) from error

    def _answer(self) -> None:
        """Give parameters to every waiting worker that is not too far ahead."""
        active = set(range(self._workers)) - self._finished - self._leaving
        slowest = min((self._clock[worker] for worker in active), default=0)
        ready = [worker for worker in sorted(self._waiting) if self._clock[worker] - slowest <= self._strategy.bound]
        if not ready:
            return
        if self._arrived:
            self._apply()
        for worker in ready:
            self._waiting.remove(worker)
            self.staleness[self._clock[worker] - slowest] += 1
            self._seen[worker] = self._log.version
            self._expect(worker)
            self._send_parameters(worker)
        self._log.tidy_up(self._shard)

    def _apply(self) -> None:
        """One update from all gradients that have arrived, added in the order of ranks."""
        arrived = dict(sorted(self._arrived.items()))
        self._arrived.clear()
        in_step = self._strategy.bound == 0
        if in_step and any(math.isnan(push.share) for push in arrived.values()):
            # In step, all leave out what one can't use.
            arrived = {worker: push._replace(share=math.nan) for worker, push in arrived.items()}
        counted = [worker for worker, push in arrived.items() if push.share > 0]
        gradients, together = self._decode(counted, arrived, in_step)
        update = Update(tuple(arrived.values()), tuple(self._shard.learning_rates), gradients, together)
        # What a worker is answered is in the log: a server that is killed loses nothing that anybody knows of.
        self._log.append(self._shard, update)
        if self._shard.apply(update):
            self._log.applied()

    def _decode(self, counted: list[int], pushes: dict[int, Push], in_step: bool) -> tuple[tuple[Tensor, ...], bool]:
        """The gradients of these workers, each for itself, or (in lock step, or of one alone) together."""
        mean = self._shard.gradients
        if not counted:
            return (), in_step
        if len(counted) == 1:
            self._codec.decode(self._inbox[counted[0]], mean, self._streams[counted[0]])
            return (mean,), True
        if not in_step:
            decoded = [torch.empty_like(mean) for _ in counted]
            for worker, into in zip(counted, decoded, strict=True):
                self._codec.decode(self._inbox[worker], into, self._streams[worker])
            return tuple(decoded), False
        mean.zero_()
        total = sum(pushes[worker].share for worker in counted)
        part = torch.empty_like(mean)
        for worker in counted:
            self._codec.decode(self._inbox[worker], part, self._streams[worker])
            mean.add_(part, alpha=pushes[worker].share / total)
        return (mean,), True

    def _share(self, behind: int, fraction: float) -> float:
        """What one gradient counts: 1/N where all N come together, and less for fewer samples than usual."""
        if math.isnan(fraction):
            return fraction
        if self._strategy.bound == 0:
            return 1 / self._workers
        match self._strategy.damping:
            case "none":
                return fraction
            case "workers":
                return fraction / self._workers
            case "inverse":
                return fraction / max(self._workers, 1 + behind)

    def _send_parameters(self, worker: int, *, as_they_are: bool = False) -> None:
        previous = self._replies.pop(worker, None)
        if previous is not None:
            previous.wait()
        parameters = self._shard.parameters
        if self._known and not as_they_are:
            outgoing = self._known[worker].encode(parameters)
        else:
            # The next update may come before this worker has them.
            outgoing = parameters.clone() if self._strategy.bound > 0 else parameters
        self._replies[worker] = self._comm.isend(outgoing, worker, Tag.PARAMETERS)
