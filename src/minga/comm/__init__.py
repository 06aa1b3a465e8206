"""How ranks talk: transports carry messages, collectives are functions over any transport."""

from dataclasses import dataclass

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
    "TransportKind",
    "all_reduce_mean",
    "all_reduce_sum",
    "average_in_place",
    "barrier",
    "broadcast",
    "same_everywhere",
]


@dataclass(frozen=True)
class TransportKind:
    """A transport that runs may use."""

    about: str
    """What it is, in a line."""
    join: str | None = None
    """`package.module:function` by which a rank joins the one group of the whole run, with the arguments of
    `minga.comm.rendezvous.join_group`; None: members come and go, and each generation connects anew."""


TRANSPORTS: dict[str, TransportKind] = {
    "tcp": TransportKind("connections of Minga's own; when a rank is killed, hangs or comes back, the others go on"),
    "gloo": TransportKind(
        "one group of ranks for the whole run, which a lost rank ends; default on GPUs and for native",
        join="minga.comm.rendezvous:join_group",
    ),
}
"""By name: `--transport tcp`, `cluster.transport`."""
