"""What a rank knows of servers: the part that it serves, or what it has pushed to those that do.

servers = ServerState.of(replica)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from minga.base.lazy import Tensor
from minga.comm import Transport
from minga.model.replica import Replica
from minga.model.sliced_optimizer import Piece, cut_evenly
from minga.strategies.parameter_server.shard import Shard
from minga.strategies.parameter_server.update_log import Period, UpdateLog

__all__ = ["ServerState", "hand_out", "optimizer_state", "parts_of_servers"]


@dataclass
class ServerState:
    """Of one rank, over all changes of who is there."""

    names: list[str] = field(default_factory=list)
    """Id and incarnation of each rank, where processes may be started again."""
    servers: int | None = None
    """Ranks that are here to serve; None: as many as the strategy says."""
    period: Period | None = None
    """Who trains now, and from where in the data on."""
    periods: int = 0
    """How many there were."""
    shard: Shard | None = None
    """The part of the parameters that this rank holds for others."""
    log: UpdateLog = field(default_factory=UpdateLog)
    """For ranks that serve: what they have applied."""
    save: Callable[[int, bool], None] = lambda number, leaving: None
    """For ranks that serve: keep a checkpoint of this number, and leave if asked to; at first, nobody does."""
    pushes: int = 0
    """What this process has sent to servers so far, ..."""
    acknowledged: int = 0
    """... the last that all of them have answered, ..."""
    final: bool = False
    """... and whether it has got their final parameters."""

    @classmethod
    def of(cls, replica: Replica) -> Self:
        return replica.extension(cls)

    def name_of(self, rank: int) -> str:
        """Identifies the process of a rank, also among earlier ones."""
        return self.names[rank] if self.names else f"rank-{rank}"


def parts_of_servers(replica: Replica, servers: int) -> list[slice]:
    """The part of the flat vector that each server holds."""
    return [slice(*cut) for cut in cut_evenly(replica.optimizer, replica.layout, servers)]


def hand_out(comm: Transport, vector: Tensor, source: int, *, patience: float) -> None:
    """Everybody gets the vector of one rank."""
    if comm.rank == source:
        for pending in [comm.isend(vector, other) for other in range(comm.size) if other != source]:
            pending.wait(patience)
    else:
        comm.receive(vector, source, patience=patience)


def optimizer_state(replica: Replica) -> list[Piece]:
    """Momentum and the like of all that this rank holds: of the whole vector, or of the part that it serves."""
    shard = ServerState.of(replica).shard
    return replica.optimizer_state() if shard is None else shard.optimizer_state()
