"""When ranks come together anew: all go on from the one that has come furthest, and no sample is lost.

    train(experiment, trainee, comm, recorder)              # until PeerLost
    recover(trainee, strategy, comm_of_those_who_are_left)

Whoever has the same bits already gets nothing but the position in the data. Samples that were given out to ranks whose
work is not in the state that all go on from, because they are gone or were behind, are owed, and come next. Where
servers have the parameters, they are who all go on from (`servers.meeting`).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import torch
from torch import Tensor

from minga.comm.transport import Transport
from minga.data.order import left_out
from minga.errors import PeerWrong, ProtocolError
from minga.strategies.base import Strategy
from minga.strategies.parameter_server.recovery import meet
from minga.training.checkpoints.snapshot import Snapshot, put_back, take
from minga.training.train_state import Beginning, TrainState

__all__ = ["recover"]

# What the leader says in words is short: a position, some stretches of samples.
_LONGEST_WORD = 16 << 20


@dataclass(frozen=True)
class _Standing:
    """What a rank brings with it."""

    veteran: bool
    step: int
    digest: int

    def to_tensor(self) -> Tensor:
        return torch.tensor([int(self.veteran), self.step, self.digest], dtype=torch.int64)


def recover(trainee: TrainState, strategy: Strategy, comm: Transport) -> int | None:
    """Bring all ranks to one point; the step that all go on from, or None if nobody has trained yet.

    A rank without `trainee.beginning` has not trained with the others before, and takes what they have.
    """
    replica, beginning = trainee.replica, trainee.beginning
    if replica.applied < replica.step:  # broken off, and made again
        replica.statistics.put_back()
    chosen: int | None = None
    if strategy.server_ranks:
        outcome = meet(trainee, strategy, comm)
        if outcome.fresh or outcome.step is not None:
            return outcome.step
        chosen = outcome.leader
    mine = _Standing(beginning is not None, replica.applied if beginning is not None else -1, _digest(trainee))
    table = [torch.empty(3, dtype=torch.int64) for _ in range(comm.size)]
    table[comm.rank] = mine.to_tensor()
    comm.all_gather(table)
    standings = [_Standing(bool(row[0]), int(row[1]), int(row[2])) for row in table]
    leader = max(range(comm.size), key=lambda rank: (standings[rank].veteran, standings[rank].step, -rank))
    leader = leader if chosen is None else chosen
    if not standings[leader].veteran:
        return None
    behind = [rank for rank, each in enumerate(standings) if each.digest != standings[leader].digest]
    if comm.rank == leader:
        assert beginning is not None
        _settle(trainee, beginning)
        _lead(trainee, strategy, comm, behind)
    else:
        try:
            _follow(trainee, strategy, comm, leader, behind=comm.rank in behind)
        except ProtocolError as error:
            raise PeerWrong(f"rank {leader} sent what can't be: {error}", rank=leader) from None
    return replica.step


def _settle(trainee: TrainState, beginning: Beginning) -> None:
    """The leader's own position: after the last step that anybody's samples in its parameters are from."""
    replica = trainee.replica
    heard = list(replica.heard) if replica.heard is not None else [replica.applied] * beginning.trainers
    heard[beginning.rank] = replica.applied
    last = max([replica.applied, *heard])
    order = beginning.order.copy()
    owed = left_out(
        order,
        workers=beginning.trainers,
        batch=trainee.batch,
        total=trainee.total_batch,
        steps=range(beginning.step + 1, last + 1),
        included=heard,
    )
    order.owed = owed + order.owed
    trainee.order.go_to(order.position())
    replica.step = replica.applied = last
    _begin_here(trainee)


def _begin_here(trainee: TrainState) -> None:
    """All samples until here are in the parameters or owed; should ranks form anew before training, this holds."""
    trainee.beginning = Beginning(trainee.replica.step, trainee.order.copy(), 0, 1)
    trainee.replica.heard = None


def _lead(trainee: TrainState, strategy: Strategy, comm: Transport, behind: list[int]) -> None:
    replica, carried = trainee.replica, strategy.carried(trainee.replica)
    _forget(trainee)
    strategy.carry(replica, carried)
    word = json.dumps({"step": replica.step, "order": trainee.order.position(), "carried": carried}).encode()
    blob = take(trainee, strategy, comm, shared_only=True).to_bytes() if behind else b""
    pending = []
    for rank in range(comm.size):
        if rank != comm.rank:
            for content in (word, blob) if rank in behind else (word,):
                tensor = torch.frombuffer(bytearray(content), dtype=torch.uint8)
                length = torch.tensor([len(content)], dtype=torch.int64)
                pending += [comm.isend(length, rank), comm.isend(tensor, rank)]
    for message in pending:
        message.wait()


def _follow(trainee: TrainState, strategy: Strategy, comm: Transport, leader: int, *, behind: bool) -> None:
    replica = trainee.replica
    word = _receive(comm, leader, _LONGEST_WORD)
    blob = _receive(comm, leader, 64 * replica.parameters.nbytes + (64 << 20)) if behind else b""
    try:
        told = json.loads(word)
        order = trainee.order.copy()
        order.go_to(told["order"])
        step, carried = int(told["step"]), dict(told["carried"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"it told a position that can't be: {error}") from None
    state = Snapshot.from_bytes(blob, trainee) if behind else None
    # Until here nothing has changed: should the leader die, this rank may have to lead, and knows whose samples it has.
    _forget(trainee)
    if state is not None:
        put_back(state, trainee, strategy, shared_only=True)
    trainee.order.go_to(order.position())
    replica.step = replica.applied = step
    strategy.carry(replica, carried)
    _begin_here(trainee)


def _receive(comm: Transport, source: int, longest: int) -> bytes:
    length = torch.empty(1, dtype=torch.int64)
    comm.receive(length, source)
    if not 0 <= int(length) <= longest:
        raise ProtocolError(f"it wants to send {int(length):,} bytes; at most {longest:,} are expected")
    content = torch.empty(int(length), dtype=torch.uint8)
    comm.receive(content, source)
    return content.numpy().tobytes()


def _forget(trainee: TrainState) -> None:
    """What strategies remember is of other ranks that are no longer the same."""
    trainee.replica.state.clear()
    trainee.replica.heard = None


def _digest(trainee: TrainState) -> int:
    """Of parameters and optimizer, 63 bits: who has the same needs nothing."""
    digest = hashlib.sha256()
    replica = trainee.replica
    for tensor in [replica.parameters, *(v for piece in replica.optimizer_state() for v in piece.tensors())]:
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return int.from_bytes(digest.digest()[:8], "big") >> 1
