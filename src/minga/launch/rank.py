"""One process of a run: it hosts a rank, or a worker and the server that lives beside it, or runs a user's script."""

from __future__ import annotations

import atexit
import dataclasses
import logging
import os
import pkgutil
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from minga.base.config import build
from minga.comm import TRANSPORTS
from minga.comm.rendezvous import join_group
from minga.errors import LeftBehind, MingaError, PeerLost, Refused, RunStopped
from minga.launch.orders import Meeting, MemberOrder, RankOrder, ScriptOrder
from minga.launch.placement import coordinator_file
from minga.launch.policy import LEFT_BEHIND, STOPPED
from minga.measure.events import Failed, RankWaiting, Stopped
from minga.measure.recorder import Recorder
from minga.membership.protocol import CoordinatorAddress
from minga.membership.session import MemberSession, StopRequest
from minga.membership.state_file import wait_for_address
from minga.net.tls import load_tls
from minga.runs.directory import event_file, save_model, server_folder
from minga.runs.experiment import Experiment, load
from minga.runs.workload import load_workload
from minga.strategies.parameter_server.disk_log import DiskUpdateLog
from minga.strategies.parameter_server.state import ServerState
from minga.training.checkpoints.files import Checkpoint
from minga.training.checkpoints.manager import CheckpointManager, NoCheckpoints
from minga.training.checkpoints.parts import last_optimizer_state
from minga.training.elastic import common_facts, train_elastic
from minga.training.loop import train
from minga.training.run_log import traced
from minga.training.train_state import TrainState, build_train_state

__all__ = ["main", "run_script"]

_LOG = logging.getLogger("minga.launch")
# Ranks with a listening coordinator beside them stop together if one of them is rank 0; otherwise they leave.
_TOGETHER_SECONDS = 3.0


def main(arguments: Mapping[str, Any]) -> int:
    """Do as a `RankOrder` says; the exit code."""
    order = build(RankOrder, arguments)
    experiment = load(order.run / "experiment.toml")
    stop = StopRequest()
    if experiment.checkpoints.enabled or order.joins:
        # Who is asked to end takes a checkpoint first, at the end of a step; who has joined others just leaves.
        signal.signal(signal.SIGTERM, lambda number, frame: stop.ask(interrupt=order.joins))
    torch.set_num_threads(experiment.cluster.threads)
    hosted = [_Rank(experiment, order, place, stop) for place in range(len(order.ranks))]
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


def run_script(arguments: Mapping[str, Any]) -> int:
    """Run the script of a `ScriptOrder` as Python would; the exit code."""
    order = build(ScriptOrder, arguments)
    torch.set_num_threads(order.threads)
    sys.argv = [str(order.script), *order.arguments]
    sys.path.insert(0, str(order.script.parent))
    try:
        runpy.run_path(str(order.script), run_name="__main__")
    except SystemExit:
        raise
    except BaseException as error:
        recorder = Recorder(event_file(order.run, order.rank))
        _record_failure(recorder, order.rank, 0, error)
        recorder.close()
        return 1
    finally:
        atexit._run_exitfuncs()  # the process leaves by os._exit, which would pass them over
    return 0


def _run_or_end(rank: _Rank) -> None:
    """In a thread beside the worker: its failure is the process's, which would otherwise wait for it in vain."""
    rank.run()
    if rank.failed:
        os._exit(1)


class _Rank:
    """One rank in this process."""

    def __init__(self, experiment: Experiment, order: RankOrder, place: int, stop: StopRequest) -> None:
        """`place`: which of the order's ranks."""
        self._experiment = experiment
        self._order = order
        self._place = place
        self._rank = order.ranks[place]
        self._stop_request = stop
        self._recorder = Recorder(event_file(order.run, self._rank))
        self._train_state: TrainState | None = None
        self._checkpoints: NoCheckpoints = NoCheckpoints()
        self.failed = False
        self.left_behind = False
        """Whether the others do without it: no failure of the run."""
        self.stopped = False

    def build(self) -> None:
        experiment, order = self._experiment, self._order
        try:
            workload = load_workload(experiment.workload, experiment.data)
            self._train_state = build_train_state(
                self._beginning(), workload, self._rank, self._recorder.spans, reads=not self._serves
            )
            if experiment.checkpoints.enabled:
                self._checkpoints = CheckpointManager(
                    order.run,
                    experiment.checkpoints,
                    self._train_state,
                    self._recorder,
                    resume_from=Checkpoint.of(order.run, order.resume) if order.resume else None,
                    session=order.session,
                    stopping=lambda: self._stop_request.asked and not order.joins,
                    one_part=order.roster is not None and order.roster.listening,
                )
            if self._serves and order.roster is not None:
                update_log = DiskUpdateLog(server_folder(order.run, self._rank - experiment.cluster.nodes))
                update_log.rescue = partial(last_optimizer_state, order.run)
                ServerState.of(self._train_state.replica).log = update_log
        except BaseException as error:
            self._fail(error)

    def _beginning(self) -> Experiment:
        """For who gets weights from others or from a checkpoint, those to start from may lie elsewhere, or be gone."""
        if not self._order.joins and not self._order.resume:
            return self._experiment
        training = dataclasses.replace(self._experiment.training, start_from=None)
        return dataclasses.replace(self._experiment, training=training)

    @property
    def _serves(self) -> bool:
        return not self._order.joins and self._rank >= self._experiment.cluster.nodes

    def run(self) -> None:
        if self.failed:
            return
        try:
            assert self._train_state is not None
            if self._order.roster is not None:
                self._train_as_member(self._order.roster, self._train_state)
            elif self._order.meeting is not None:
                self._train_together(self._order.meeting, self._train_state)
        except RunStopped as stopped:
            self._stop(str(stopped))
        except BaseException as error:
            self._fail(error)
        finally:
            if self._train_state is not None:
                ServerState.of(self._train_state.replica).log.close(finished=not self.failed and not self.stopped)
            self._checkpoints.close()
            self._recorder.close()

    def _save(self) -> None:
        assert self._train_state is not None
        save_model(self._order.run, self._train_state.replica.model)

    def _train_as_member(self, entry: MemberOrder, train_state: TrainState) -> None:
        """In groups whose members come and go."""
        order, cluster = self._order, self._experiment.cluster
        tls = load_tls(entry.tls) if entry.tls else None
        address, port = entry.coordinator or wait_for_address(coordinator_file(order.run), cluster.timeout_seconds)
        where = CoordinatorAddress(
            address=address,
            port=port,
            token=entry.token,
            run=entry.run,
            tls=tls,
            source_address=order.address if entry.interface else None,
        )
        with MemberSession(
            where,
            id=entry.id or f"node-{self._rank}",
            role="server" if self._serves else "worker",
            address=order.address,
            host=entry.hosts[self._place],
            facts=common_facts(self._experiment, train_state),
            heartbeat_timeout_seconds=cluster.heartbeat_timeout_seconds,
            patient=entry.listening,
            stop=self._stop_request,
            leaves_after=0.0 if order.joins else _TOGETHER_SECONDS if entry.listening else None,
            on_waiting=self._record_waiting,
        ) as member_session:
            try:
                train_elastic(
                    self._experiment, train_state, self._recorder, self._checkpoints, member_session, save=self._save
                )
            except Refused as refused:
                if entry.start != "again":
                    raise
                # It was started again when the others had nearly finished, and needs nobody any more.
                _LOG.warning("rank %d is not needed any more: %s", self._rank, refused)

    def _record_waiting(self, message: str) -> None:
        self._recorder.emit(RankWaiting(time=self._recorder.now(), rank=self._rank, message=message))
        self._recorder.flush()

    def _train_together(self, meeting: Meeting, train_state: TrainState) -> None:
        """In one group of ranks from the beginning to the end."""
        kind = TRANSPORTS[self._experiment.transport]
        join = pkgutil.resolve_name(kind.join) if kind.join is not None else join_group  # a rank alone needs no other
        transport = join(
            meeting.address,
            meeting.port,
            self._order.run.name,
            rank=self._rank,
            size=self._experiment.ranks,
            address=self._order.address,
            timeout_seconds=self._experiment.cluster.timeout_seconds,
            hosts=meeting.hosts,
        )
        comm = traced(transport, self._recorder)
        train(self._experiment, train_state, comm, self._recorder, self._checkpoints)
        comm.close()
        if self._rank == 0:
            self._save()

    def _stop(self, reason: str) -> None:
        assert self._train_state is not None
        self.stopped = True
        step = self._train_state.replica.step
        name, now = self._checkpoints.last_written, self._recorder.now()
        self._recorder.emit(Stopped(time=now, rank=self._rank, step=step, checkpoint=name, reason=reason))

    def _fail(self, error: BaseException) -> None:
        self.failed = True
        self.left_behind = isinstance(error, LeftBehind)
        step = self._train_state.replica.step if self._train_state is not None else 0
        _record_failure(self._recorder, self._rank, step, error)


def _record_failure(recorder: Recorder, rank: int, step: int, error: BaseException) -> None:
    """Record what went wrong, for the launcher to show once."""
    expected = isinstance(error, MingaError)
    recorder.emit(
        Failed(
            time=recorder.now(),
            rank=rank,
            step=step,
            kind=type(error).__name__,
            message=str(error),
            traceback="" if expected else "".join(traceback.format_exception(error)),
            consequence=isinstance(error, PeerLost),
        )
    )
    recorder.flush()
