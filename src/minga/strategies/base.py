"""The one interface that matters: how replicas exchange what they learn, and when (docs/strategies.md)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from minga.base.config import FieldError
from minga.base.spec import Named, describe
from minga.codecs import Codec, Plain
from minga.comm import Transport, all_reduce_mean, broadcast, same_everywhere
from minga.model.layout import Bucket
from minga.model.replica import Replica

__all__ = ["Strategy", "Traits", "check_least", "refuse_momentum_correction"]


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What others may ask of a strategy without knowing it: the planner, the training loop, checkpoints, reports.

    Whoever says nothing gets defaults that cost work, never correctness.
    """

    lockstep: bool = True
    """All ranks that train are at the same step, so they can meet for an evaluation or a checkpoint."""

    replicas_differ: bool = True
    """Replicas may differ between steps: who looks at the model asks for what they agree on."""

    averages_gradients: bool = False
    """Every step applies the mean of all ranks' gradients, as one process with all samples would."""

    exact: bool = False
    """It learns what one process with the whole batch would, to the last digits."""

    hides_exchanges: bool = True
    """An exchange may still go on in the background when `step` has returned."""

    uses_buckets: bool = False
    """`gradient_ready` exchanges gradients while backward runs."""

    adapts: bool = False
    """It follows changes of the network by itself."""

    period: int = 1
    """Steps after which what it does begins again."""

    partners: Literal["all", "neighbours", "servers"] = "all"
    """With whom a rank exchanges."""

    servers: int = 0
    """Ranks on top of the nodes, for servers."""

    servers_beside_workers: bool = False
    """The servers live in the processes of the first workers instead of their own."""

    servers_in_lockstep: bool = True
    """All ranks that train are at the same step while there are servers."""

    changes_roles: bool = False
    """Ranks take another role on the way: they train first, and serve later."""

    fewest_nodes: int = 1
    """It needs so many nodes."""

    most_nodes: int | None = None
    """It is for so many nodes at most (None: any number)."""

    backend_collectives: bool = False
    """It exchanges with the backend's own collectives (gloo's, NCCL's), which also work on GPUs."""

    runs_on_gpus: bool = False
    """It has what it needs on GPUs."""

    codecs: tuple[Codec, ...] = ()
    """All that it may encode with, where that is more than its field `codec`."""

    epochs_factor: Callable[[int], float] = lambda nodes: 1.0
    """Of a number of nodes: the epochs that it needs for what one process learns in one, as the planner assumes."""


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


def check_least(strategy: Strategy, **least: int) -> None:
    """For the checks of strategies: none of these fields is less than that."""
    for name, value in least.items():
        if getattr(strategy, name) < value:
            bound = f"at least {value}" if value else "0 or more"
            raise FieldError((name,), f"should be {bound}, not {getattr(strategy, name)}")


def refuse_momentum_correction(codec: Codec) -> None:
    """For the checks of strategies that exchange parameters: momentum is corrected in gradients."""
    if codec.corrects_momentum:
        raise FieldError(
            ("codec",),
            f"{describe(codec)} corrects momentum of gradients, which are not exchanged here; "
            "leave momentum_correction out, or use it with allreduce or ps",
        )
