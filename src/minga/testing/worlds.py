"""Small worlds to try things in: ranks as threads of this process."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch.distributed as dist

from minga.comm.tcp import DataListener, TcpTransport, Tls
from minga.comm.threads import run_ranks, run_threads
from minga.comm.torch_dist import TorchTransport
from minga.comm.transport import Transport
from minga.measure.recorder import Recorder
from minga.membership.generation import Generation, MemberInfo
from minga.model.replica import Replica
from minga.runs.experiment import Experiment
from minga.runs.workload import Workload
from minga.training.loop import train
from minga.training.train_state import build_train_state

__all__ = ["generation_of", "run_gloo_threads", "run_tcp_threads", "train_in_threads"]

Result = TypeVar("Result")


def train_in_threads(
    experiment: Experiment,
    workload: Workload,
    *,
    timeout_seconds: float = 30.0,
    run_on: Callable[..., list[Any]] = run_threads,
) -> list[Replica]:
    """Train with the real loop on the thread transport (or by `run_on`); the replicas of all ranks, servers last."""
    # One after the other: threads share torch's random numbers.
    trainees = [build_train_state(experiment, workload, rank) for rank in range(experiment.ranks)]

    def body(comm: Transport) -> Replica:
        train(experiment, trainees[comm.rank], comm, Recorder(None))
        return trainees[comm.rank].replica

    return run_on(experiment.ranks, body, timeout_seconds=timeout_seconds)


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


def generation_of(doors: Sequence[DataListener], number: int = 1, *, hosts: Sequence[str] | None = None) -> Generation:
    """The members that listen at some doors."""
    names = hosts if hosts is not None else ["localhost"] * len(doors)
    members = tuple(
        MemberInfo(id=f"node-{rank}", incarnation=secrets.token_hex(8), address=door.address, port=door.port, host=host)
        for rank, (door, host) in enumerate(zip(doors, names, strict=True))
    )
    return Generation(number=number, members=members, secret=secrets.token_hex(32))


def run_tcp_threads(
    size: int,
    function: Callable[[Transport], Result],
    *,
    timeout_seconds: float = 30.0,
    hosts: Sequence[str] | None = None,
    tls: Tls | None = None,
) -> list[Result]:
    """Run `function(comm)` on `size` ranks that are threads here, but talk over TCP connections of their own."""
    with contextlib.ExitStack() as stack:
        doors = [stack.enter_context(DataListener(tls=tls)) for _ in range(size)]
        generation = generation_of(doors, hosts=hosts)
        transports: dict[int, TcpTransport] = {}

        def connect(rank: int) -> Transport:
            comm = transports[rank] = TcpTransport(generation, rank, doors[rank], timeout_seconds)
            try:
                comm.wait_until_connected()
            except BaseException:
                comm.close()
                raise
            return comm

        # Who fails says no goodbye, as a process that ends.
        return run_ranks(size, connect, function, when_failed=lambda rank, why: transports[rank].abort(why))
