"""Small worlds to try things in: ranks as threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch.distributed as dist

from minga.comm.threads import run_ranks, run_threads
from minga.comm.torch_dist import TorchTransport
from minga.comm.transport import Transport
from minga.experiment import Experiment
from minga.measure.recorder import Recorder
from minga.replica import Replica
from minga.train import train
from minga.trainee import build_trainee
from minga.workload import Workload

__all__ = ["run_gloo_threads", "train_in_threads"]

Result = TypeVar("Result")


def train_in_threads(experiment: Experiment, workload: Workload, *, timeout_seconds: float = 30.0) -> list[Replica]:
    """Train with the real loop on the thread transport; the replicas of all ranks, servers last."""
    # One after the other: threads share torch's random numbers.
    trainees = [build_trainee(experiment, workload, rank) for rank in range(experiment.ranks)]

    def body(comm: Transport) -> Replica:
        train(experiment, trainees[comm.rank], comm, Recorder(None))
        return trainees[comm.rank].replica

    return run_threads(experiment.ranks, body, timeout_seconds=timeout_seconds)


def run_gloo_threads(
    size: int,
    function: Callable[[Transport], Result],
    *,
    timeout_seconds: float = 30.0,
    hosts: Sequence[str] | None = None,
) -> list[Result]:
    """Run `function(comm)` on `size` ranks that are threads here, but talk over gloo and real sockets."""
    store = dist.HashStore()  # type: ignore[attr-defined]

    def connect(rank: int) -> Transport:
        return TorchTransport(
            store, rank=rank, size=size, address="127.0.0.1", timeout_seconds=timeout_seconds, hosts=hosts
        )

    return run_ranks(size, connect, function)
