"""Small worlds to try things in: ranks as threads of this process, on which faults happen at a given rank and step.

train_in_threads(experiment, workload)                              # from the beginning to the end
train_with_checkpoints(run, experiment, workload, resume=name)      # with checkpoints on disk
train_without(experiment, workload, lost=2, step=11)                # rank 2 is gone after its step 11
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch.distributed as dist

from minga.comm import barrier
from minga.comm.tcp import DataListener, TcpTransport
from minga.comm.threads import ThreadWorld, run_ranks, run_threads
from minga.comm.torch_dist import TorchTransport
from minga.comm.transport import Transport
from minga.errors import PeerLost
from minga.measure.recorder import Recorder
from minga.model.replica import Replica
from minga.net.generation import Generation, MemberInfo, new_incarnation, new_secret
from minga.net.tls import Tls
from minga.runs.directory import event_file
from minga.runs.experiment import Experiment
from minga.runs.workload import Workload
from minga.strategies.capabilities import trainers
from minga.strategies.parameter_server.state import ServerState
from minga.training.checkpoints.files import Checkpoint
from minga.training.checkpoints.manager import CheckpointManager
from minga.training.checkpoints.writer import Part
from minga.training.loop import train
from minga.training.recovery import recover
from minga.training.train_state import TrainState, build_train_state

__all__ = [
    "PatientManager",
    "generation_of",
    "run_gloo_threads",
    "run_tcp_threads",
    "train_in_threads",
    "train_with_checkpoints",
    "train_without",
]

Result = TypeVar("Result")


def train_in_threads(
    experiment: Experiment,
    workload: Workload,
    *,
    timeout_seconds: float = 30.0,
    run_on: Callable[..., list[Any]] = run_threads,
    when_stepped: Callable[[TrainState, Transport], None] = lambda state, comm: None,
) -> list[Replica]:
    """Train with the real loop on the thread transport (or by `run_on`); the replicas of all ranks, servers last.

    `when_stepped` is called on each rank that trains after each of its steps.
    """
    # One after the other: threads share torch's random numbers.
    states = [build_train_state(experiment, workload, rank) for rank in range(experiment.ranks)]

    def body(comm: Transport) -> Replica:
        state = states[comm.rank]
        train(experiment, state, comm, Recorder(None), when_stepped=partial(when_stepped, state, comm))
        return state.replica

    return run_on(experiment.ranks, body, timeout_seconds=timeout_seconds)


class PatientManager(CheckpointManager):
    """Waits until each checkpoint is written: steps are too short here, and a newer one would take its place."""

    def _submit(self, part: Part, *, best: bool = False) -> None:
        super()._submit(part, best=best)
        assert self._writer.wait(20)


def train_with_checkpoints(
    run: Path, experiment: Experiment, workload: Workload, *, resume: str | None = None, **options: Any
) -> list[TrainState]:
    """Train in threads with checkpoints in `run`, from the one called `resume` on; what was trained on each rank."""
    states = [build_train_state(experiment, workload, rank) for rank in range(experiment.ranks)]
    resume_from = Checkpoint.of(run, resume) if resume else None

    def body(comm: Transport) -> TrainState:
        state, recorder = states[comm.rank], Recorder(event_file(run, comm.rank))
        manager = PatientManager(run, experiment.checkpoints, state, recorder, resume_from=resume_from, **options)
        try:
            train(experiment, state, comm, recorder, manager)
        finally:
            recorder.close()
        return state

    return run_threads(experiment.ranks, body)


class _Killed(Exception):
    """By the script of a test."""


def train_without(experiment: Experiment, workload: Workload, *, lost: int, step: int) -> list[TrainState]:
    """Train in threads; the rank `lost` ends after its step `step`, and the others recover and train to the end."""
    states = [build_train_state(experiment, workload, rank) for rank in range(experiment.ranks)]
    survivors = [rank for rank in range(experiment.ranks) if rank != lost]
    before, after = ThreadWorld(len(states)), ThreadWorld(len(survivors))
    strategy = experiment.chosen_strategy

    def body(rank: int, comm: Transport) -> None:
        state = states[rank]
        servers = ServerState.of(state.replica)

        def kill() -> None:
            if rank == lost and state.replica.step == step:
                raise _Killed

        def train_on(world: ThreadWorld, members: Sequence[int]) -> None:
            servers.names = [f"rank-{member}" for member in members]
            servers.servers = len([member for member in members if member >= experiment.cluster.nodes])
            comm = world.transport(members.index(rank))
            try:
                recover(state, strategy, comm)
                train(experiment, state, comm, Recorder(None), when_stepped=kill)
                # Whoever is done waits for the others: with one of them lost, all go on together.
                if comm.rank < (ranks := trainers(strategy, state.replica, comm)):
                    barrier(comm.group(range(ranks)))
            except BaseException as error:
                world.fail(comm.rank, repr(error))
                raise
            finally:
                comm.close()

        try:
            train_on(before, range(experiment.ranks))
        except _Killed:
            return
        except PeerLost:
            train_on(after, survivors)

    run_ranks(len(states), before.transport, lambda comm: body(comm.rank, comm))
    return [states[rank] for rank in survivors]


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


def generation_of(
    listeners: Sequence[DataListener], number: int = 1, *, hosts: Sequence[str] | None = None
) -> Generation:
    """A generation of those that have these listeners."""
    names = hosts if hosts is not None else ["localhost"] * len(listeners)
    members = tuple(
        MemberInfo(id=f"node-{rank}", incarnation=new_incarnation(), address=each.address, port=each.port, host=host)
        for rank, (each, host) in enumerate(zip(listeners, names, strict=True))
    )
    return Generation(number=number, members=members, secret=new_secret())


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
        listeners = [stack.enter_context(DataListener(tls=tls)) for _ in range(size)]
        generation = generation_of(listeners, hosts=hosts)
        transports: dict[int, TcpTransport] = {}

        def connect(rank: int) -> Transport:
            comm = transports[rank] = TcpTransport(generation, rank, listeners[rank], timeout_seconds)
            try:
                comm.wait_until_connected()
            except BaseException:
                comm.close()
                raise
            return comm

        # Who fails says no goodbye, as a process that ends.
        return run_ranks(size, connect, function, when_failed=lambda rank, why: transports[rank].abort(why))
