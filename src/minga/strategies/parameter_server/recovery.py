"""Recovery around servers: all say what they have, servers come to one point, workers take it from them.

    recovered = meet(trained, strategy, comm)
    recovered.step                                     # all are there; otherwise `recovered.leader` has what counts

Servers keep their shards in memory over all changes. One that was killed and started again has restored its own from
disk; one that can't takes the parameters that a worker pulled last.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from minga.base.lazy import torch
from minga.comm.transport import Transport
from minga.data.order import Order, left_out
from minga.errors import PeerWrong, ProtocolError
from minga.model.replica import Replica
from minga.net.strict import parse
from minga.strategies.base import Strategy
from minga.strategies.capabilities import Agreeing, capability
from minga.strategies.parameter_server.agreement import Agreement, RankState, agree
from minga.strategies.parameter_server.shard import Shard
from minga.strategies.parameter_server.state import ServerState, hand_out, parts_of_servers
from minga.strategies.parameter_server.update_log import Book

__all__ = ["Recovered", "meet", "share_texts"]

_LOG = logging.getLogger("minga.strategies.parameter_server")
_LONGEST_TEXT = 64 << 20
# A server reads its snapshot and applies its log again while the others wait.
_PATIENCE = 10.0


class RecoverableState(Protocol):
    """What a rank brings: its replica, its place in the data, and the batch that places are counted in."""

    replica: Replica
    order: Order
    batch: int
    total_batch: int | None

    @property
    def survivor(self) -> bool:
        """Whether it has trained with the others before."""


@dataclass(frozen=True)
class Recovered:
    """What came out when ranks met."""

    step: int | None = None
    """The step that all go on from, if they are brought there."""
    fresh: bool = False
    """Nobody has trained yet."""
    leader: int | None = None
    """Who is sure to have what counts, where that is not on servers; None: as everywhere else."""


def meet(trained: RecoverableState, strategy: Strategy, comm: Transport) -> Recovered:
    """On all ranks: bring them to one point, if servers have the parameters."""
    texts = share_texts(comm, json.dumps(asdict(_own_state(trained, strategy, comm))))
    words = [_understood(rank, text) for rank, text in enumerate(texts)]
    replica, state = trained.replica, ServerState.of(trained.replica)
    state.periods = max([state.periods, *(word.period.number for word in words if word.period)])
    done = [rank for rank, word in enumerate(words) if word.final]
    if done:
        return _take_final(trained, comm, words, done[0])
    held = [word.truth for word in words if word.server]
    if strategy.traits.changes_roles and not (held and all(held)) and not any(word.acknowledged for word in words):
        # There are no servers yet, or some have become servers and some have not. Nobody has got an answer from all of
        # them, so nothing counts that came after. Workers may have got one from some; who was to serve has none.
        state.shard = None
        state.log.reset()
        if not any(held):
            return Recovered()
        clean = [rank for rank, word in enumerate(words) if word.server and word.survivor]
        return Recovered(
            leader=max(clean, key=lambda rank: (words[rank].truth, words[rank].applied, -rank), default=None)
        )
    if not any(word.truth or (word.survivor and not word.server) for word in words):
        return Recovered(fresh=True)
    agreement = agree(words, lockstep=strategy.traits.servers_in_lockstep)
    _bring_servers_together(trained, strategy, comm, agreement)
    _take_position(trained, strategy, agreement)
    return Recovered(step=replica.step)


def _own_state(trained: RecoverableState, strategy: Strategy, comm: Transport) -> RankState:
    replica, state = trained.replica, ServerState.of(trained.replica)
    log, survivor = state.log, trained.survivor
    server = comm.rank >= comm.size - (strategy.traits.servers if state.servers is None else state.servers)
    if server and state.shard is None and log.holds and not state.final:
        shard = Shard(replica, _part(trained, strategy, comm.rank, comm))
        if log.restore(shard):
            state.shard = shard
    truth = server and state.shard is not None and log.period is not None
    return RankState(
        name=state.name_of(comm.rank),
        server=server,
        survivor=survivor,
        final=state.final and not server,
        applied=replica.progress.last_applied_step,
        acknowledged=state.acknowledged,
        step=replica.step,
        order=trained.order.position(),
        period=log.period if truth else state.period if survivor else None,
        truth=truth,
        book=log.book.entries if truth else {},
    )


def _part(trained: RecoverableState, strategy: Strategy, rank: int, comm: Transport) -> slice:
    servers = strategy.traits.servers
    return parts_of_servers(trained.replica, servers)[rank - (comm.size - servers)]


def _take_final(trained: RecoverableState, comm: Transport, words: Sequence[RankState], source: int) -> Recovered:
    """The training is over for one, so it is for all; servers may have left already."""
    replica, word = trained.replica, words[source]
    hand_out(comm, replica.parameters, source, patience=_PATIENCE)
    trained.order.go_to(word.order)
    replica.step = replica.progress.last_applied_step = word.step
    replica.state.clear()
    ServerState.of(replica).final = True
    return Recovered(step=replica.step)


def _bring_servers_together(
    trained: RecoverableState, strategy: Strategy, comm: Transport, agreement: Agreement
) -> None:
    replica, rank = trained.replica, comm.rank
    state = ServerState.of(replica)
    undone = agreement.undone.get(rank)
    if undone:
        assert state.shard is not None
        if state.log.undo(state.shard, undone):
            _LOG.info("server %d has undone %d pushes that other servers do not have", rank, len(undone))
        else:
            _LOG.warning(
                "server %d has %d pushes that other servers do not have, and can't undo them: their samples count "
                "twice in its part of the parameters",
                rank,
                len(undone),
            )
    for server in range(comm.size - strategy.traits.servers, comm.size):
        part = _part(trained, strategy, server, comm)
        if server in agreement.lost:
            assert agreement.source is not None
            _rescue(trained, comm, agreement, server, part)
        if rank == server:
            assert state.shard is not None
            replica.parameters[part].copy_(state.shard.parameters)
        hand_out(comm, replica.parameters[part], server, patience=_PATIENCE)


def _rescue(trained: RecoverableState, comm: Transport, agreement: Agreement, server: int, part: slice) -> None:
    """A server without a shard gets a worker's last pulled parameters, and the optimizer's state of a checkpoint."""
    replica, source = trained.replica, agreement.source
    assert source is not None
    if comm.rank == source:
        comm.isend(replica.parameters[part], server).wait(_PATIENCE)
    elif comm.rank == server:
        comm.receive(replica.parameters[part], source, patience=_PATIENCE)
        state = ServerState.of(replica)
        state.log.reset()
        pieces = list(state.log.rescue())
        state.shard = Shard(replica, part)
        state.shard.go_to(replica.parameters[part], pieces)
        state.log.book = Book(agreement.common)
        if any(agreement.common.values()):
            _LOG.warning(
                "server %d has lost its part of the parameters, on disk too. It goes on from what rank %d had pulled "
                "last, with %s: training is no longer exactly what it would have been",
                server,
                source,
                "the optimizer's state of the last checkpoint" if pieces else "an optimizer that begins anew",
            )


def _take_position(trained: RecoverableState, strategy: Strategy, agreement: Agreement) -> None:
    """After the last step that anybody's samples are in the state from; what is not in it comes next."""
    replica, period = trained.replica, agreement.period
    last = max([period.step, *agreement.merged_steps])
    order = trained.order.copy()
    try:
        order.go_to(period.order)
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"a server sent a malformed position in the data: {error}") from None
    owed = left_out(
        order,
        workers=len(period.workers),
        batch=trained.batch,
        total=trained.total_batch,
        steps=range(period.step + 1, last + 1),
        included=agreement.merged_steps,
    )
    order.owed = owed + order.owed
    trained.order.go_to(order.position())
    replica.step = replica.progress.last_applied_step = last
    replica.state.clear()
    replica.progress.begin(last, 1)
    capability(strategy, replica, Agreeing).go_on_with(replica, period.agreed_facts)


def share_texts(comm: Transport, text: str) -> list[str]:
    """What each rank has to say, in the order of ranks, known to all."""
    content = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    lengths = [torch.empty(1, dtype=torch.int64) for _ in range(comm.size)]
    lengths[comm.rank].fill_(len(content))
    comm.all_gather(lengths)
    sizes = [int(length) for length in lengths]
    for rank, size in enumerate(sizes):
        if not 0 < size <= _LONGEST_TEXT:
            what = f"wants to send {size:,} bytes; at most {_LONGEST_TEXT:,} are expected"
            raise PeerWrong(f"rank {rank} {what}", rank=rank)
    words = [torch.zeros(max(sizes), dtype=torch.uint8) for _ in sizes]
    words[comm.rank][: len(content)] = content
    comm.all_gather(words)
    return [word[:size].numpy().tobytes().decode(errors="replace") for word, size in zip(words, sizes, strict=True)]


def _understood(rank: int, text: str) -> RankState:
    try:
        return parse(RankState, json.loads(text), "its state")
    except (ValueError, ProtocolError) as error:
        raise PeerWrong(f"rank {rank} sent a malformed message: {error}", rank=rank) from None
