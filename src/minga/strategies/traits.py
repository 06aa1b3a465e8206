"""What others may ask of a strategy without knowing it: the planner, the training loop, checkpoints, reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from minga.codecs.base import Codec

__all__ = ["Traits"]


def _as_one_process(nodes: int) -> float:
    return 1.0


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Facts about a strategy. Whoever says nothing gets defaults that cost work, never correctness."""

    lockstep: bool = True
    """All ranks that train are at the same step, so they can meet for an evaluation or a checkpoint."""

    replicas_differ: bool = True
    """Replicas may differ between steps: evaluations and checkpoints take their mean."""

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

    epochs_factor: Callable[[int], float] = _as_one_process
    """Of a number of nodes: the epochs that it needs for what one process learns in one, as the planner assumes."""
