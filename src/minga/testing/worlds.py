"""Small worlds to try things in: ranks as threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch.distributed as dist

from minga.comm.threads import run_threads
from minga.comm.torch_dist import TorchTransport
from minga.comm.transport import Transport
from minga.errors import PeerLost
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
    results: dict[int, Result] = {}
    errors: list[BaseException] = []

    def body(rank: int) -> None:
        transport: TorchTransport | None = None
        try:
            transport = TorchTransport(
                store, rank=rank, size=size, address="127.0.0.1", timeout_seconds=timeout_seconds, hosts=hosts
            )
            results[rank] = function(transport)
        except BaseException as error:
            errors.append(error)
        finally:
            if transport is not None:
                transport.close()

    threads = [threading.Thread(target=body, args=(rank,), name=f"gloo-rank-{rank}") for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((error for error in errors if not isinstance(error, PeerLost)), errors[0])
    return [results[rank] for rank in range(size)]
