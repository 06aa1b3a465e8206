"""Parameter servers: workers push gradients and pull parameters; servers hold the parameters and update them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from minga.base.config import FieldError
from minga.base.lazy import Tensor, torch
from minga.codecs import Plain, Stream
from minga.codecs.reference_copy import ReferenceCopy
from minga.comm import Pending, Transport
from minga.model.replica import Replica
from minga.strategies.base import Strategy, Traits, check_least
from minga.strategies.capabilities import Checkpointed, Serving
from minga.strategies.parameter_server.server import KEY, PATIENCE, About, Server, ServerMemory, Tag
from minga.strategies.parameter_server.state import ServerState, hand_out, parts_of_servers

__all__ = ["ParameterServer"]

_Arrival = tuple[Pending, Tensor, ReferenceCopy | None]
"""Of a server's answer: what to wait for, where it comes, and what it is a difference to, if it is one."""


@dataclass(frozen=True, kw_only=True)
class ParameterServer(Strategy, Serving, Checkpointed):
    """Servers hold the parameters; workers push gradients and pull parameters (Li et al., OSDI 2014).

    Each server holds one slice of the flat vector and the optimizer's state for it. One rule covers the modes: a
    worker gets its answer when it is at most `staleness` steps ahead of the slowest (Ho et al., NIPS 2013), and
    before answering, the server applies what has arrived as *one* update. With staleness 0 (`sync`) that is the
    mean of all workers' gradients: exactly synchronous SGD, also with momentum or Adam. With no bound (`async`) it
    is usually one gradient, applied with 1/N of the learning rate, so that N pushes move the parameters as far as
    one synchronous step; a gradient that is staler than N updates counts less still (Zhang et al.,
    arXiv:1511.05950), and so does one from a batch that the end of an epoch cut short.

    Servers are the truth. When a worker fails, the others go on with what all servers have applied; each push is known
    by its sender and its number, so it counts once or, where a server lacks it, not at all and its samples come again.
    A server that fails is started again, and goes on from its own log (`docs/parameter-servers.md`).
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
        check_least(self, servers=1)
        if self.staleness is not None:
            check_least(self, staleness=0)
            if self.mode != "ssp":
                raise FieldError(("staleness",), f"is for mode=ssp, not for mode={self.mode}")

    @property
    def traits(self) -> Traits:
        together, beside = self.bound == 0, self.placement == "beside"
        return Traits(
            lockstep=together,
            replicas_differ=False,
            averages_gradients=together,
            exact=together and isinstance(self.codec, Plain),
            partners="servers",
            servers=self.servers,
            servers_beside_workers=beside,
            servers_in_lockstep=together,
            fewest_nodes=self.servers if beside else 1,
            epochs_factor=lambda nodes: 1.0 + 0.01 * min(self.bound, nodes),
        )

    @property
    def bound(self) -> float:
        """How many steps a worker may be ahead of the slowest."""
        if self.mode == "ssp":
            return 3 if self.staleness is None else self.staleness
        return 0 if self.mode == "sync" else math.inf

    def trainers(self, replica: Replica, comm: Transport) -> int:
        state = ServerState.of(replica)
        # At the very end, servers leave before the workers do.
        return comm.size - (state.servers if state.final and state.servers is not None else self.servers)

    def start(self, replica: Replica, comm: Transport) -> None:
        super().start(replica, comm)
        replica.state.setdefault(KEY, ServerMemory())
        if self.codec.corrects_momentum:
            # Servers too: their optimizer is a copy of this one.
            momentum = replica.hand_over_momentum()
            for server, part in enumerate(parts_of_servers(replica, self.servers)):
                self._push_stream(replica, server, part).momentum = momentum

    def step(self, replica: Replica, comm: Transport) -> None:
        info, state = replica.info, ServerState.of(replica)
        if self.bound == 0 and info.weight != 1.0:
            replica.gradients.mul_(info.weight)
        info.skipped = info.non_finite is not None
        state.pushes += 1
        self._pull(self._push(replica, comm, About.PUSH), About.PUSH)
        state.acknowledged, replica.progress.last_applied_step = state.pushes, replica.step

    def finish(self, replica: Replica, comm: Transport) -> None:
        """Everybody takes the servers' parameters as they are, once the last worker is done."""
        state = ServerState.of(replica)
        if state.final:
            return
        self._pull(self._push(replica, comm, About.FINISH), About.FINISH)
        state.final = True
        # A server leaves when nobody needs it any more: had one gone earlier, a worker might still have to ask it.
        self._notify(replica, comm, About.DONE)

    def _notify(self, replica: Replica, comm: Transport, about: About, value: float = 0.0) -> None:
        """All servers get a header without gradients."""
        header = self._header(replica, about, value)
        for pending in [comm.isend(header, server, Tag.HEADER) for server in self._ranks(comm)]:
            pending.wait(PATIENCE)

    def _push_stream(self, replica: Replica, server: int, part: slice) -> Stream:
        return replica.stream(f"gradients for server {server}", part)

    def _ranks(self, comm: Transport) -> range:
        """Of the servers."""
        return range(comm.size - self.servers, comm.size)

    def _header(self, replica: Replica, about: About, value: float) -> Tensor:
        return torch.tensor(
            [about, value, ServerState.of(replica).pushes, *replica.learning_rates], dtype=torch.float64
        )

    def _push(self, replica: Replica, comm: Transport, about: About) -> list[_Arrival]:
        """Send gradients to all servers; where their answers will be."""
        # A server that gets NaN as a share leaves these gradients out; in lock step, everybody's.
        non_finite = about is About.PUSH and replica.info.non_finite is not None
        header = self._header(replica, about, math.nan if non_finite else replica.info.batch_fraction)
        differences = self.codec.changes_form and about is About.PUSH
        arrivals: list[_Arrival] = []
        sends: list[Pending] = []
        for server, (rank, part) in enumerate(
            zip(self._ranks(comm), parts_of_servers(replica, self.servers), strict=True)
        ):
            stream, into = self._push_stream(replica, server, part), replica.parameters[part]
            copy = ReferenceCopy(into, self.codec, stream) if differences else None
            landing = into if copy is None else copy.landing()
            arrivals.append((comm.ireceive(landing, rank, Tag.PARAMETERS), landing, copy))
            if about is About.PUSH:
                own = replica.gradients[part]
                gradients = (
                    self.codec.encoded_like(own, stream).zero_() if non_finite else self.codec.encode(own, stream)
                )
                sends.append(comm.isend(gradients, rank, Tag.GRADIENTS))
            # The header comes last, as a doorbell: a server never waits for a gradient on a slow link
            # while another worker's is complete.
            sends.append(comm.isend(header, rank, Tag.HEADER))
        for pending in sends:
            pending.wait()
        return arrivals

    def _pull(self, arrivals: list[_Arrival], about: About) -> None:
        """Take the servers' answers."""
        for pending, landing, copy in arrivals:
            pending.wait(PATIENCE if about is About.FINISH or self.bound > 0 else 1.0)
            if copy is not None:
                copy.apply(landing)

    def announce_checkpoint(self, replica: Replica, comm: Transport, number: int, *, leaving: bool) -> None:
        """Servers keep their part once all workers have asked for it; in lock step, that is the same moment for all."""
        self._notify(replica, comm, About.LEAVE if leaving else About.SAVE, number)

    def resume(self, replica: Replica, comm: Transport) -> None:
        """Where workers and servers kept their parts at moments of their own, the servers' is the truth."""
        if self.bound == 0:
            return
        for server, part in enumerate(parts_of_servers(replica, self.servers)):
            hand_out(comm, replica.parameters[part], self._ranks(comm)[server], patience=PATIENCE)
        replica.state[KEY] = ServerMemory()  # what a worker knew was of another moment

    def serve(self, replica: Replica, comm: Transport) -> None:
        state = ServerState.of(replica)
        if state.final:
            return
        part = parts_of_servers(replica, self.servers)[self._ranks(comm).index(comm.rank)]
        server = Server(self, replica, comm, part)
        server.run()
        replica.notes["staleness"] = dict(sorted(server.staleness.items()))
        replica.notes["updates_behind"] = dict(sorted(server.updates_behind.items()))
        if costs := state.log.costs():
            replica.notes["server_log"] = costs
