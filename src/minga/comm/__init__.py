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
    "TRANSPORTS",
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

TRANSPORTS: dict[str, str] = {
    "tcp": "connections of Minga's own; when a rank is killed, hangs or comes back, the others go on",
    "gloo": "one group of ranks for the whole run, which a lost rank ends; default on GPUs and for native",
}
"""Those that a run may use, and what each of them is, in one line: `--transport tcp`, `cluster.transport`."""
