"""The one interface that matters: how replicas exchange what they learn, and when (docs/strategies.md)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from minga.base.config import FieldError
from minga.base.spec import Named, describe
from minga.codecs.base import Codec
from minga.codecs.plain import Plain
from minga.comm import Transport, all_reduce_mean, broadcast, same_everywhere
from minga.model.layout import Bucket
from minga.model.replica import Replica
from minga.strategies.traits import Traits

__all__ = ["Strategy", "Traits", "refuse_momentum_correction"]


@dataclass(frozen=True, kw_only=True)
class Strategy(Named, ABC):
    """How replicas exchange what they learn.

    The fields are the configuration; what changes during a run lives in `replica.state`. A strategy talks only to
    `comm` and `replica`: it does not know whether ranks are processes, threads or simulated, and never measures,
    logs or prints. Every wait has a deadline: when a peer fails, `PeerLost` ends the step and names it.

    What few strategies do, such as serving parameters, is in `minga.strategies.capabilities`.
    """

    kind = "strategy"

    codec: Codec = field(default_factory=Plain)
    """The form that vectors have on the wire."""

    @property
    def traits(self) -> Traits:
        """Facts that others may ask; the defaults are safe for every strategy."""
        return Traits()

    def start(self, replica: Replica, comm: Transport) -> None:
        """Before the first step, on every rank; default: everybody takes rank 0's parameters, if they differ."""
        if not replica.in_sync and not same_everywhere(comm, replica.digest()):
            broadcast(comm, replica.parameters)

    @abstractmethod
    def step(self, replica: Replica, comm: Transport) -> None:
        """After each backward pass: exchange, update."""

    def gradient_ready(self, replica: Replica, bucket: Bucket, comm: Transport) -> None:
        """While backward runs, for each bucket in order, if `start` called `replica.cut_buckets`."""

    def finish(self, replica: Replica, comm: Transport) -> None:
        """After the last step, on the ranks that train; afterwards all replicas agree. Default: their mean."""
        all_reduce_mean(comm, replica.parameters)


def refuse_momentum_correction(codec: Codec) -> None:
    """For the checks of strategies that exchange parameters: momentum is corrected in gradients."""
    if codec.corrects_momentum:
        raise FieldError(
            ("codec",),
            f"{describe(codec)} corrects momentum of gradients, which are not exchanged here; "
            "leave momentum_correction out, or use it with allreduce or ps",
        )
