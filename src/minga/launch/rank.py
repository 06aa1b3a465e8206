"""One process of a run: it hosts a rank, or a worker and the server that lives beside it."""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import threading
import time
import traceback
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from minga.comm.torch_dist import TorchTransport
from minga.comm.traced import TracedTransport
from minga.errors import LeftBehind, MingaError, PeerLost, Refused, RunStopped
from minga.launch.placement import coordinator_file
from minga.launch.rendezvous import join_meeting
from minga.measure.events import Failed, RankWaiting, Stopped
from minga.measure.recorder import Recorder
from minga.membership.session import MemberSession, train_through_changes
from minga.membership.state_file import wait_for_address
from minga.runs.directory import event_file, save_model, server_folder
from minga.runs.experiment import Experiment, load
from minga.runs.workload import load_workload
from minga.strategies.parameter_server.disk_log import DiskUpdateLog
from minga.strategies.parameter_server.state import ServerState
from minga.training.checkpoints.files import Checkpoint
from minga.training.checkpoints.manager import CheckpointManager, NoCheckpoints
from minga.training.checkpoints.resume import Resumption, last_optimizer_state
from minga.training.loop import train
from minga.training.train_state import TrainState, build_train_state

__all__ = ["STOPPED", "main", "record_failure"]

STOPPED = 128 + signal.SIGTERM
"""The exit code of a rank that was asked to stop, and has."""
LEFT_BEHIND = 75
"""The exit code of a rank that the others go on without."""

_LOG = logging.getLogger("minga.launch")
_asked_to_stop: list[float] = []  # when; no lock, which a second signal might find taken by the first
_leaving_sessions: list[MemberSession] = []
# Ranks with a listening coordinator beside them stop together if one of them is rank 0; otherwise they leave.
_TOGETHER_SECONDS = 3.0


def main(arguments: Mapping[str, Any]) -> int:
    """Run the ranks in `arguments["ranks"]`; the exit code."""
    directory = Path(arguments["run"])
    experiment = load(directory / "experiment.toml")
    if experiment.checkpoints.enabled or arguments.get("joined"):
        # Who is asked to end takes a checkpoint first, at the end of a step; who has joined others just leaves.
        signal.signal(signal.SIGTERM, lambda number, frame: _ask_to_stop())
    torch.set_num_threads(experiment.cluster.threads)
    hosted = [_Rank(experiment, directory, rank, arguments) for rank in arguments["ranks"]]
    # The worker is built last, so that no other model draws from its random numbers.
    for rank in reversed(hosted):
        rank.build()
    threads = [threading.Thread(target=_run_or_end, args=(rank,), daemon=True) for rank in hosted[1:]]
    for thread in threads:
        thread.start()
    hosted[0].run()
    for thread in threads:
        # When the worker has failed, its server may wait for others until the deadline: leave it behind.
        thread.join(timeout=None if not hosted[0].failed else 0)
    if any(rank.failed for rank in hosted):
        return LEFT_BEHIND if hosted[0].left_behind else 1
    return STOPPED if any(rank.stopped for rank in hosted) else 0


def _ask_to_stop() -> None:
    """A signal's handler."""
    _asked_to_stop.append(time.monotonic())
    for member_session in _leaving_sessions:
        member_session.interrupt()


def _run_or_end(rank: _Rank) -> None:
    """In a thread beside the worker: its failure is the process's, which would otherwise wait for it in vain."""
    rank.run()
    if rank.failed:
        os._exit(1)


class _Rank:
    """One rank in this process."""

    def __init__(self, experiment: Experiment, directory: Path, rank: int, arguments: Mapping[str, Any]) -> None:
        self._experiment = experiment
        self._directory = directory
        self._rank = rank
        self._arguments = arguments
        self._joined = bool(arguments.get("joined"))
        self._listening = self._joined or bool(arguments.get("listening"))
        self._recorder = Recorder(event_file(directory, rank))
        self._train_state: TrainState | None = None
        self._checkpoints = NoCheckpoints()
        self.failed = False
        self.left_behind = False
        """Whether the others do without it: no failure of the run."""
        self.stopped = False

    def build(self) -> None:
        try:
            workload = load_workload(self._experiment.workload, self._experiment.data)
            self._train_state = build_train_state(
                self._beginning(), workload, self._rank, self._recorder.spans, reads=not self._serves
            )
            if self._experiment.checkpoints.enabled:
                self._checkpoints = self._keep(self._train_state)
            if self._serves and self._arguments["token"]:
                ServerState.of(self._train_state.replica).log = self._keep_updates()
        except BaseException as error:
            self._fail(error)

    def _beginning(self) -> Experiment:
        """For who gets weights from others or from a checkpoint, those to start from may lie elsewhere, or be gone."""
        if not self._joined and not self._arguments.get("resume"):
            return self._experiment
        training = dataclasses.replace(self._experiment.training, start_from=None)
        return dataclasses.replace(self._experiment, training=training)

    def _keep(self, train_state: TrainState) -> NoCheckpoints:
        name = self._arguments.get("resume")
        return CheckpointManager(
            self._directory,
            self._experiment.checkpoints,
            train_state,
            self._recorder,
            resumption=Resumption(Checkpoint(self._directory / "checkpoints" / name)) if name else None,
            session=self._arguments.get("session", 0),
            stopping=lambda: bool(_asked_to_stop) and not self._joined,
            one_part=self._listening,
        )

    @property
    def _serves(self) -> bool:
        return not self._joined and self._rank >= self._experiment.cluster.nodes

    def _keep_updates(self) -> DiskUpdateLog:
        update_log = DiskUpdateLog(server_folder(self._directory, self._rank - self._experiment.cluster.nodes))
        update_log.rescue = partial(last_optimizer_state, self._directory)
        return update_log

    def run(self) -> None:
        if self.failed:
            return
        try:
            self._train()
        except RunStopped as stopped:
            self._stop(str(stopped))
        except BaseException as error:
            self._fail(error)
        finally:
            if self._train_state is not None:
                ServerState.of(self._train_state.replica).log.close(finished=not self.failed and not self.stopped)
            self._checkpoints.close()
            self._recorder.close()

    def _train(self) -> None:
        assert self._train_state is not None
        if self._arguments["token"]:
            self._train_with_changes(self._train_state)
        else:
            self._train_together()
            if self._rank == 0:
                self._save()

    def _save(self) -> None:
        assert self._train_state is not None
        save_model(self._directory, self._train_state.replica.model)

    def _train_with_changes(self, train_state: TrainState) -> None:
        seconds = self._experiment.cluster.timeout_seconds
        member_session = {
            "id": f"node-{self._rank}",
            "role": "server" if self._serves else "worker",
            "name": self._directory.name,
            **self._arguments,
        }
        if not self._joined:
            member_session["coordinator"] = wait_for_address(coordinator_file(self._directory), seconds)
        host = self._arguments["hosts"][0 if self._joined else self._rank]
        with MemberSession.take(
            member_session, self._experiment, train_state, host=host, leaving=self._leaving, told=self._tell_waiting
        ) as taken:
            if self._joined:
                _leaving_sessions.append(taken)
            try:
                train_through_changes(
                    self._experiment, train_state, self._recorder, self._checkpoints, taken, save=self._save
                )
            except Refused as refused:
                if not self._arguments.get("again"):
                    raise
                # It was started again when the others had nearly finished, and needs nobody any more.
                _LOG.warning("rank %d is not needed any more: %s", self._rank, refused)

    def _tell_waiting(self, message: str) -> None:
        self._recorder.emit(RankWaiting(time=self._recorder.now(), rank=self._rank, message=message))
        self._recorder.flush()

    def _leaving(self) -> bool:
        """Whether this rank goes while others go on."""
        if not self._listening or not _asked_to_stop:
            return False
        return self._joined or time.monotonic() - _asked_to_stop[0] > _TOGETHER_SECONDS

    def _train_together(self) -> None:
        """In one group of ranks from the beginning to the end."""
        assert self._train_state is not None
        cluster = self._experiment.cluster
        address, port = self._arguments["meeting"]
        store = join_meeting(address, port, self._directory.name, cluster.timeout_seconds)
        transport = TorchTransport(
            store,
            rank=self._rank,
            size=self._experiment.ranks,
            address=self._arguments["address"],
            timeout_seconds=cluster.timeout_seconds,
            hosts=self._arguments["hosts"],
        )
        spans, traffic = self._recorder.spans, self._recorder.traffic
        comm = TracedTransport(transport, traffic, waiting=lambda: spans.span("wait"))
        train(self._experiment, self._train_state, comm, self._recorder, self._checkpoints)
        comm.close()

    def _stop(self, reason: str) -> None:
        assert self._train_state is not None
        self.stopped = True
        step = self._train_state.replica.step
        name = self._checkpoints.last_written if isinstance(self._checkpoints, CheckpointManager) else None
        now = self._recorder.now()
        self._recorder.emit(Stopped(time=now, rank=self._rank, step=step, checkpoint=name, reason=reason))

    def _fail(self, error: BaseException) -> None:
        self.failed = True
        self.left_behind = isinstance(error, LeftBehind)
        step = self._train_state.replica.step if self._train_state is not None else 0
        record_failure(self._recorder, self._rank, step, error)


def record_failure(recorder: Recorder, rank: int, step: int, error: BaseException) -> None:
    """Leave word of what went wrong, for the launcher to tell once."""
    told = isinstance(error, MingaError)
    recorder.emit(
        Failed(
            time=recorder.now(),
            rank=rank,
            step=step,
            kind=type(error).__name__,
            message=str(error),
            traceback="" if told else "".join(traceback.format_exception(error)),
            consequence=isinstance(error, PeerLost),
        )
    )
    recorder.flush()
