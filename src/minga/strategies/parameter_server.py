"""Parameter servers: workers push gradients and pull parameters; servers hold the parameters and update them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from minga.codecs.base import Codec
from minga.codecs.public_copy import PublicCopy
from minga.codecs.stream import Stream
from minga.comm import Pending, Transport
from minga.config import FieldError
from minga.errors import PeerTimeout
from minga.replica import Replica, Shard
from minga.strategies.base import Strategy

__all__ = ["ParameterServer"]

_HEADER, _GRADIENTS, _PARAMETERS = 1, 2, 3
_PUSH, _FINISH, _SAVE, _LEAVE = 0.0, 1.0, 2.0, 3.0
_KEY = "server"
# Servers hear nothing while workers test the model, and a fast worker waits at the end for the slowest one.
_PATIENCE = 30.0


@dataclass(frozen=True, kw_only=True)
class ParameterServer(Strategy):
    """Servers hold the parameters; workers push gradients and pull parameters (Li et al., OSDI 2014).

    Each server holds one slice of the flat vector and the optimizer's state for it. One rule covers the modes: a
    worker gets its answer when it is at most `staleness` steps ahead of the slowest (Ho et al., NIPS 2013), and
    before answering, the server applies what has arrived as *one* update. With staleness 0 (`sync`) that is the
    mean of all workers' gradients: exactly synchronous SGD, also with momentum or Adam. With no bound (`async`) it
    is usually one gradient, applied with 1/N of the learning rate, so that N pushes move the parameters as far as
    one synchronous step; a gradient that is staler than N updates counts less still (Zhang et al.,
    arXiv:1511.05950), and so does one from a batch that the end of an epoch cut short.

    A worker that fails is missed by the servers at the deadline, a server by its workers; both are named.
    """

    mode: Literal["sync", "async", "ssp"] = field(default="sync", metadata={"always_shown": True})
    """sync: all workers step together. ssp: some may be `staleness` steps ahead. async: nobody waits."""

    servers: int = 1
    """How many servers share the parameters."""

    staleness: int | None = None
    """For ssp: how many steps a worker may be ahead of the slowest one (default 3)."""

    placement: Literal["own", "beside"] = "own"
    """own: a process for each server. beside: server i lives in the process of worker i, on the same node."""

    damping: Literal["inverse", "workers", "none"] = "inverse"
    """What a single gradient counts when not all come together. inverse: 1/max(N, updates it is behind);
    workers: 1/N; none: 1, the full learning rate for every push."""

    def check(self) -> None:
        if self.servers < 1:
            raise FieldError(("servers",), f"should be at least 1, not {self.servers}")
        if self.staleness is not None and self.mode != "ssp":
            raise FieldError(("staleness",), f"is for mode=ssp, not for mode={self.mode}")
        if self.staleness is not None and self.staleness < 0:
            raise FieldError(("staleness",), f"should be 0 or more, not {self.staleness}")

    def check_nodes(self, nodes: int) -> None:
        if self.placement == "beside" and self.servers > nodes:
            raise FieldError(
                ("strategy", "servers"),
                f"{self.servers} servers can't live beside {nodes} workers; at most {nodes}",
            )

    @property
    def server_ranks(self) -> int:
        return self.servers

    @property
    def servers_beside_workers(self) -> bool:
        return self.placement == "beside"

    @property
    def bound(self) -> float:
        """How many steps a worker may be ahead of the slowest."""
        if self.mode == "ssp":
            return 3 if self.staleness is None else self.staleness
        return 0 if self.mode == "sync" else math.inf

    def lockstep(self, replica: Replica) -> bool:
        return self.bound == 0

    def start(self, replica: Replica, comm: Transport) -> None:
        super().start(replica, comm)
        if self.codec.corrects_momentum:
            # Servers too: their optimizer is a copy of this one.
            momentum = replica.hand_over_momentum()
            for server, part in enumerate(replica.shards(self.servers)):
                self._push_stream(replica, server, part).momentum = momentum

    def step(self, replica: Replica, comm: Transport) -> None:
        if self.bound == 0 and replica.weight != 1.0:
            replica.gradients.mul_(replica.weight)
        replica.skipped = replica.bad is not None
        self._push_and_pull(replica, comm, _PUSH)

    def finish(self, replica: Replica, comm: Transport) -> None:
        """Everybody takes the servers' parameters as they are, once the last worker is done."""
        self._push_and_pull(replica, comm, _FINISH)

    def _push_stream(self, replica: Replica, server: int, part: slice) -> Stream:
        return self.stream(replica, f"gradients for server {server}", part)

    def _push_and_pull(self, replica: Replica, comm: Transport, kind: float) -> None:
        # A server that is told of a share that is no number leaves these gradients out; in step, everybody's.
        bad = kind == _PUSH and replica.bad is not None
        header = torch.tensor([kind, math.nan if bad else replica.fill, *replica.learning_rates], dtype=torch.float64)
        first = comm.size - self.servers
        differences = self.codec.changes_form and kind == _PUSH
        arrivals: list[tuple[Pending, Tensor, PublicCopy | None]] = []
        sends: list[Pending] = []
        for server, part in enumerate(replica.shards(self.servers)):
            stream, into = self._push_stream(replica, server, part), replica.parameters[part]
            copy = PublicCopy(into, self.codec, stream) if differences else None
            landing = into if copy is None else copy.landing()
            arrivals.append((comm.ireceive(landing, first + server, _PARAMETERS), landing, copy))
            if kind == _PUSH:
                own = replica.gradients[part]
                gradients = self.codec.encoded_like(own, stream).zero_() if bad else self.codec.encode(own, stream)
                sends.append(comm.isend(gradients, first + server, _GRADIENTS))
            # The header comes last, as a doorbell: a server never waits for a gradient on a slow link
            # while another worker's is complete.
            sends.append(comm.isend(header, first + server, _HEADER))
        for pending in sends:
            pending.wait()
        for pending, landing, copy in arrivals:
            pending.wait(_PATIENCE if kind == _FINISH or self.bound > 0 else 1.0)
            if copy is not None:
                copy.apply(landing)

    def announce(self, replica: Replica, comm: Transport, moment: int, *, leaving: bool) -> None:
        """Servers keep their part once all workers have asked for it; in step, that is the same moment for all."""
        kind = _LEAVE if leaving else _SAVE
        header = torch.tensor([kind, moment, *replica.learning_rates], dtype=torch.float64)
        first = comm.size - self.servers
        for pending in [comm.isend(header, first + server, _HEADER) for server in range(self.servers)]:
            pending.wait(_PATIENCE)

    def resume(self, replica: Replica, comm: Transport) -> None:
        """Where workers and servers kept their parts at moments of their own, the servers' is the truth."""
        if self.bound == 0:
            return
        for server, part in enumerate(replica.shards(self.servers)):
            broadcast_from(comm, replica.parameters[part], comm.size - self.servers + server)
        replica.state.pop(_KEY, None)  # what a worker knew was of another moment

    def serve(self, replica: Replica, comm: Transport) -> None:
        part = replica.shards(self.servers)[comm.rank - (comm.size - self.servers)]
        server = _Server(self, replica, comm, part)
        server.run()
        replica.notes["staleness"] = dict(sorted(server.staleness.items()))
        replica.notes["updates_behind"] = dict(sorted(server.updates_behind.items()))


def broadcast_from(comm: Transport, vector: Tensor, source: int) -> None:
    """Everybody gets `vector` of one rank."""
    if comm.rank == source:
        others = [comm.isend(vector, other, _PARAMETERS) for other in range(comm.size) if other != source]
        for pending in others:
            pending.wait(_PATIENCE)
    else:
        comm.receive(vector, source, _PARAMETERS, patience=_PATIENCE)


@dataclass
class Served:
    """What a server remembers of its workers, besides its shard."""

    version: int
    """Updates applied."""
    streams: list[Stream]
    """Of the codec, for each worker; empty where values travel as they are."""
    known: list[Tensor]
    """What each worker has of the parameters, where they are sent as differences."""


class _Server:
    """One server: its shard, and what it knows of each worker."""

    def __init__(self, strategy: ParameterServer, replica: Replica, comm: Transport, part: slice) -> None:
        shapes = tuple(replica.layout.shapes(part.start, part.stop))
        shard: Shard = replica.shard(part)
        before: Served | None = replica.state.get(_KEY)
        self._replica = replica
        self._strategy = strategy
        self._codec: Codec = strategy.codec
        self._shard = shard
        self._comm = comm
        self._workers = comm.size - strategy.servers
        self._header = torch.empty(2 + len(shard.learning_rates), dtype=torch.float64)
        # Which of a worker's streams doesn't matter for decoding: only the shapes do.
        self._streams = [Stream(shapes, seed=worker, rank=comm.rank) for worker in range(self._workers)]
        self._inbox = [self._codec.encoded_like(shard.parameters, stream) for stream in self._streams]
        self._known: list[PublicCopy] = []
        """What each worker has of the parameters, where they are sent as differences."""
        if self._codec.changes_form:
            if before is not None:
                self._streams = before.streams
            known = before.known if before is not None else [shard.parameters.clone() for _ in self._streams]
            pairs = zip(known, self._streams, strict=True)
            self._known = [PublicCopy(copy, self._codec, stream) for copy, stream in pairs]
        self._coming: dict[int, Pending] = {}
        self._replies: dict[int, Pending] = {}
        self._clock = [0] * self._workers
        """Steps that each worker has pushed."""
        self._version = before.version if before is not None else 0
        """Updates applied."""
        self._seen = [self._version] * self._workers
        """The version that each worker computes with."""
        self._arrived: dict[int, float] = {}
        """Workers whose gradient is not applied yet, and what it counts."""
        self._waiting: set[int] = set()
        self._finished: set[int] = set()
        self._leaving: set[int] = set()
        """Workers that were asked to stop, and have."""
        self._asked: dict[int, set[int]] = {}
        """Workers that want a checkpoint of a moment."""
        self.staleness: Counter[int] = Counter()
        """How many steps a worker was ahead of the slowest when it got its parameters."""
        self.updates_behind: Counter[int] = Counter()
        """How many updates lay between the parameters that a gradient was computed with and its own update."""

    def run(self) -> None:
        for worker in range(self._workers):
            self._expect(worker)
        while len(self._finished) < self._workers:
            worker = self._next_header()
            kind = float(self._header[0])
            if kind in (_SAVE, _LEAVE):
                if kind == _LEAVE:
                    self._leaving.add(worker)
                self._save(worker, int(self._header[1]), leaving=kind == _LEAVE)
                self._answer()  # who waits for one that leaves would wait for ever
                continue
            if kind == _FINISH:
                self._finished.add(worker)
                self._coming.pop(worker).cancel()
            else:
                self._coming.pop(worker).wait()
                fill, *self._shard.learning_rates = self._header[1:].tolist()
                self._clock[worker] += 1
                behind = self._version - self._seen[worker]
                self.updates_behind[behind] += 1
                self._arrived[worker] = self._share(behind, fill)
                self._waiting.add(worker)
            self._answer()
        for worker in range(self._workers):
            self._send_parameters(worker, as_they_are=True)
        for reply in self._replies.values():
            reply.wait()

    def _save(self, worker: int, moment: int, *, leaving: bool) -> None:
        """Keep this server's part once all workers have asked for it, if they still do."""
        asked = self._asked.setdefault(moment, set())
        asked.add(worker)
        if asked | self._finished < set(range(self._workers)):
            return
        self._asked = {other: workers for other, workers in self._asked.items() if other > moment}
        streams = self._streams if self._known else []
        self._replica.state[_KEY] = Served(self._version, streams, [copy.known for copy in self._known])
        self._replica.save(moment, leaving)

    def _expect(self, worker: int) -> None:
        # Posted before the worker pushes, so that its gradient travels at once.
        self._coming[worker] = self._comm.ireceive(self._inbox[worker], worker, _GRADIENTS)

    def _next_header(self) -> int:
        try:
            return self._comm.receive(self._header, None, _HEADER, patience=_PATIENCE)
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
            self._seen[worker] = self._version
            self._expect(worker)
            self._send_parameters(worker)

    def _apply(self) -> None:
        """One update from all gradients that have arrived, added in the order of ranks."""
        bad = {worker for worker, share in self._arrived.items() if math.isnan(share)}
        if bad and self._strategy.bound == 0:
            self._arrived.clear()  # in step, all leave out what one can't use
        for worker in bad:
            self._arrived.pop(worker, None)
        total = sum(self._arrived.values())
        if total == 0:  # nothing but empty shares
            self._arrived.clear()
            return
        self._shard.gradients.zero_()
        decoded = torch.empty_like(self._shard.gradients)
        for worker, count in sorted(self._arrived.items()):
            self._codec.decode(self._inbox[worker], decoded, self._streams[worker])
            self._shard.gradients.add_(decoded, alpha=count / total)
        self._shard.update(share=total)
        self._version += 1
        self._arrived.clear()

    def _share(self, behind: int, fill: float) -> float:
        """What one gradient counts: 1/N where all N come together, and less for fewer samples than usual."""
        if math.isnan(fill):
            return fill
        if self._strategy.bound == 0:
            return 1 / self._workers
        match self._strategy.damping:
            case "none":
                return fill
            case "workers":
                return fill / self._workers
            case "inverse":
                return fill / max(self._workers, 1 + behind)

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
        self._replies[worker] = self._comm.isend(outgoing, worker, _PARAMETERS)
