"""Recovery after ranks were lost or have joined: all go on from the one that has come furthest, and no sample is lost.

    train(experiment, state, comm, recorder)                # until PeerLost
    recover(state, strategy, comm_of_those_who_are_left)

Whoever has the same bits already gets nothing but the position in the data. Samples that were given out to ranks whose
work is not in the state that all go on from, because they are gone or were behind, are owed, and come next. Where
servers have the parameters, they are who all go on from (`strategies.parameter_server.recovery`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import torch

from minga.comm import Transport, all_reduce_mean
from minga.data.order import left_out
from minga.errors import PeerWrong, ProtocolError
from minga.strategies.base import Strategy
from minga.strategies.capabilities import Agreeing, active, capability
from minga.strategies.parameter_server.recovery import meet
from minga.training.checkpoints.snapshot import Snapshot, longest_blob, put_back, take
from minga.training.train_state import Beginning, TrainState

__all__ = ["recover"]

# What the leader says as text is short: a position, some stretches of samples.
_LONGEST_TEXT = 16 << 20


class _MemberState(NamedTuple):
    """What a rank brings with it."""

    survivor: int
    """Whether it has trained with the others before."""
    step: int
    """The last of its own steps that is in its parameters."""
    digest: int
    """Of parameters and optimizer: who has the same as the leader needs nothing."""
    began: int
    """The step after which it began to train with the others, ..."""
    rank: int
    """... as this rank of them."""
    differs: int
    """Whether replicas differ between steps."""

    @classmethod
    def of(cls, state: TrainState, strategy: Strategy) -> Self:
        beginning, replica = state.beginning, state.replica
        if beginning is None:
            return cls(0, -1, _digest(state), -1, -1, 0)
        differs = active(strategy, replica).traits.replicas_differ
        step = replica.progress.last_applied_step
        return cls(1, step, _digest(state), beginning.step, beginning.rank, int(differs))


def recover(state: TrainState, strategy: Strategy, comm: Transport) -> int | None:
    """Bring all ranks to one point; the step that all go on from, or None if nobody has trained yet.

    A rank without `state.beginning` has not trained with the others before, and takes what they have.
    """
    replica, beginning = state.replica, state.beginning
    if replica.progress.last_applied_step < replica.step:  # broken off, and made again
        replica.statistics.put_back()
    chosen: int | None = None
    if strategy.traits.servers:
        recovered = meet(state, strategy, comm)
        if recovered.fresh or recovered.step is not None:
            return recovered.step
        chosen = recovered.leader
    table = [torch.empty(len(_MemberState._fields), dtype=torch.int64) for _ in range(comm.size)]
    table[comm.rank] = torch.tensor(_MemberState.of(state, strategy), dtype=torch.int64)
    comm.all_gather(table)
    standings = [_MemberState(*row.tolist()) for row in table]
    leader = max(range(comm.size), key=lambda rank: (standings[rank].survivor, standings[rank].step, -rank))
    leader = leader if chosen is None else chosen
    if not standings[leader].survivor:
        return None
    behind = [rank for rank, each in enumerate(standings) if each.digest != standings[leader].digest]
    brought = _bring_survivors_together(state, comm, standings, leader)
    if comm.rank == leader:
        assert beginning is not None
        _owe_what_is_missing(state, strategy, beginning, brought)
        _lead(state, strategy, comm, behind)
    else:
        try:
            _follow(state, strategy, comm, leader, behind=comm.rank in behind)
        except ProtocolError as error:
            raise PeerWrong(f"rank {leader} sent a malformed state: {error}", rank=leader) from None
    return replica.step


def _bring_survivors_together(
    state: TrainState, comm: Transport, standings: Sequence[_MemberState], leader: int
) -> dict[int, int]:
    """Replicas that differ become their mean: what each has learned stays. By former ranks, up to which step."""
    survivors = [rank for rank, each in enumerate(standings) if each.survivor]
    same = len({standings[rank].digest for rank in survivors}) == 1
    if same or not all(standings[rank].differs for rank in survivors):
        return {}
    if comm.rank in survivors:
        all_reduce_mean(comm.group(survivors), state.replica.parameters)
    together = [standings[rank] for rank in survivors if standings[rank].began == standings[leader].began]
    return {each.rank: each.step for each in together}


def _owe_what_is_missing(
    state: TrainState, strategy: Strategy, beginning: Beginning, brought: Mapping[int, int]
) -> None:
    """The leader's own position: after the last step that anybody's samples in its parameters are from."""
    replica, progress = state.replica, state.replica.progress
    if active(strategy, replica).traits.replicas_differ:
        merged = progress.merged_steps
    else:
        merged = [progress.last_applied_step] * beginning.trainers
    for rank, step in {**brought, beginning.rank: progress.last_applied_step}.items():
        if rank < len(merged):
            merged[rank] = max(merged[rank], step)
    last = max(merged)
    order = beginning.order.copy()
    owed = left_out(
        order,
        workers=beginning.trainers,
        batch=state.batch,
        total=state.total_batch,
        steps=range(beginning.step + 1, last + 1),
        included=merged,
    )
    order.owed = owed + order.owed
    state.order.go_to(order.position())
    replica.step = progress.last_applied_step = last
    state.begin_alone()


def _lead(state: TrainState, strategy: Strategy, comm: Transport, behind: list[int]) -> None:
    replica = state.replica
    facts = capability(strategy, replica, Agreeing).agreed_facts(replica)
    replica.state.clear()  # what strategies remember is of other ranks that are no longer the same
    capability(strategy, replica, Agreeing).go_on_with(replica, facts)
    text = json.dumps({"step": replica.step, "order": state.order.position(), "agreed_facts": facts}).encode()
    blob = take(state, strategy, comm, shared_only=True).to_bytes() if behind else b""
    pending = []
    for rank in range(comm.size):
        if rank != comm.rank:
            for content in (text, blob) if rank in behind else (text,):
                tensor = torch.frombuffer(bytearray(content), dtype=torch.uint8)
                length = torch.tensor([len(content)], dtype=torch.int64)
                pending += [comm.isend(length, rank), comm.isend(tensor, rank)]
    for message in pending:
        message.wait()


def _follow(state: TrainState, strategy: Strategy, comm: Transport, leader: int, *, behind: bool) -> None:
    replica = state.replica
    text = _receive(comm, leader, _LONGEST_TEXT)
    blob = _receive(comm, leader, longest_blob(replica)) if behind else b""
    try:
        position = json.loads(text)
        order = state.order.copy()
        order.go_to(position["order"])
        step, facts = int(position["step"]), dict(position["agreed_facts"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"its position is malformed: {error}") from None
    snapshot = Snapshot.from_bytes(blob, state) if behind else None
    # Until here nothing has changed: should the leader die, this rank may have to lead, and knows whose samples it has.
    replica.state.clear()
    if snapshot is not None:
        put_back(snapshot, state, strategy, shared_only=True)
    state.order.go_to(order.position())
    replica.step = replica.progress.last_applied_step = step
    capability(strategy, replica, Agreeing).go_on_with(replica, facts)
    state.begin_alone()


def _receive(comm: Transport, source: int, longest: int) -> bytes:
    length = torch.empty(1, dtype=torch.int64)
    comm.receive(length, source)
    if not 0 <= int(length) <= longest:
        raise ProtocolError(f"it wants to send {int(length):,} bytes; at most {longest:,} are expected")
    content = torch.empty(int(length), dtype=torch.uint8)
    comm.receive(content, source)
    return content.numpy().tobytes()


def _digest(state: TrainState) -> int:
    """Of parameters and optimizer, 63 bits: who has the same needs nothing."""
    digest = hashlib.sha256()
    replica = state.replica
    for tensor in [replica.parameters, *(v for piece in replica.optimizer_state() for v in piece.tensors())]:
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return int.from_bytes(digest.digest()[:8], "big") >> 1
