"""From steps alone to steps together: momentum has to agree too, or equal gradients move replicas apart."""

from __future__ import annotations

from minga.comm import Transport, all_reduce_mean
from minga.replica import Replica

__all__ = ["average_optimizers"]


def average_optimizers(replica: Replica, comm: Transport) -> None:
    """Everybody's optimizer goes on from the mean of what all remember; on all ranks, each of which has stepped."""
    if comm.size > 1:
        for piece in replica.optimizer_state():
            for tensor in piece.tensors():
                all_reduce_mean(comm, tensor)
