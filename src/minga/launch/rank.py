"""One process of a run: it hosts a rank, or a worker and the server that lives beside it."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from minga.comm.torch_dist import TorchTransport
from minga.comm.traced import TracedTransport
from minga.errors import MingaError, PeerLost
from minga.experiment import Experiment, load
from minga.launch.meeting import join_meeting
from minga.measure.events import Failed
from minga.measure.recorder import Recorder
from minga.run_directory import event_file, save_model
from minga.train import train
from minga.trainee import Trainee, build_trainee
from minga.workload import load_workload

__all__ = ["main", "record_failure"]


def main(arguments: Mapping[str, Any]) -> int:
    """Run the ranks in `arguments["ranks"]`; the exit code."""
    directory = Path(arguments["run"])
    experiment = load(directory / "experiment.toml")
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
    return int(any(rank.failed for rank in hosted))


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
        self._recorder = Recorder(event_file(directory, rank))
        self._trainee: Trainee | None = None
        self.failed = False

    def build(self) -> None:
        try:
            workload = load_workload(self._experiment.workload, self._experiment.data)
            self._trainee = build_trainee(self._experiment, workload, self._rank, self._recorder.spans)
        except BaseException as error:
            self._fail(error)

    def run(self) -> None:
        if self.failed:
            return
        try:
            self._train()
        except BaseException as error:
            self._fail(error)
        finally:
            self._recorder.close()

    def _train(self) -> None:
        assert self._trainee is not None
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
        train(self._experiment, self._trainee, comm, self._recorder)
        if self._rank == 0:
            save_model(self._directory, self._trainee.replica.model)
        comm.close()

    def _fail(self, error: BaseException) -> None:
        self.failed = True
        step = self._trainee.replica.step if self._trainee is not None else 0
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
