"""From steps alone to steps together: momentum has to agree too, or equal gradients move replicas apart."""

from __future__ import annotations

from minga.comm import Transport, all_reduce_mean, all_reduce_sum
from minga.model.replica import Replica

__all__ = ["average_optimizers"]


def average_optimizers(replica: Replica, comm: Transport) -> None:
    """Everybody's optimizer goes on from the mean of what all of them remember.

    If some remember nothing, since they have had no samples yet, all start over.
    """
    if comm.size == 1:
        return
    tensors = [tensor for piece in replica.optimizer_state() for tensor in piece.tensors()]
    mean, square = (value / comm.size for value in all_reduce_sum(comm, len(tensors), len(tensors) ** 2))
    if square != mean**2:
        replica.forget_optimizer()
        return
    for tensor in tensors:
        all_reduce_mean(comm, tensor)
