"""How ranks talk: transports carry messages, collectives are functions over any transport."""

from minga.comm.collectives import (
    COLLECTIVES,
    all_reduce_mean,
    all_reduce_sum,
    average_in_place,
    barrier,
    broadcast,
    same_everywhere,
)
from minga.comm.transport import Done, Group, Pending, Transport

__all__ = [
    "COLLECTIVES",
    "Done",
    "Group",
    "Pending",
    "Transport",
    "all_reduce_mean",
    "all_reduce_sum",
    "average_in_place",
    "barrier",
    "broadcast",
    "same_everywhere",
]
