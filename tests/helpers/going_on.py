"""Training in threads with checkpoints on disk, and going on from one of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from minga.comm.threads import run_threads
from minga.comm.transport import Transport
from minga.measure.recorder import Recorder
from minga.runs.directory import event_file
from minga.runs.experiment import Checkpoints, Cluster, Experiment, Training
from minga.runs.workload import Workload
from minga.training.checkpoints.files import Checkpoint
from minga.training.checkpoints.manager import CheckpointManager
from minga.training.checkpoints.resume import Resumption
from minga.training.checkpoints.writer import Part
from minga.training.loop import train
from minga.training.train_state import TrainState, build_train_state


class PatientManager(CheckpointManager):
    """Waits until each checkpoint is written: steps are too short here, and a newer one would take its place."""

    def _submit(self, part: Part, *, best: bool = False) -> None:
        super()._submit(part, best=best)
        assert self._writer.wait(20)


def experiment_of(strategy: Any, nodes: int, *, every_steps: int = 7, keep: int = 100, **training: Any) -> Experiment:
    return Experiment(
        workload="blobs",
        strategy=strategy,
        cluster=Cluster(nodes=nodes),
        training=Training(**{"steps": 30, "evaluate_every": 0, **training}),
        checkpoints=Checkpoints(every_steps=every_steps, every_seconds=0, keep=keep, keep_best=False),
    )


def train_with_checkpoints(
    run: Path, experiment: Experiment, workload: Workload, *, resume: str | None = None, **options: Any
) -> list[TrainState]:
    """Train in threads; what was trained on each rank."""
    train_states = [build_train_state(experiment, workload, rank) for rank in range(experiment.ranks)]

    def body(comm: Transport) -> TrainState:
        recorder = Recorder(event_file(run, comm.rank))
        checkpoint = Checkpoint(run / "checkpoints" / resume) if resume else None
        checkpoints = PatientManager(
            run,
            experiment.checkpoints,
            train_states[comm.rank],
            recorder,
            resumption=None if checkpoint is None else Resumption(checkpoint),
            **options,
        )
        try:
            train(experiment, train_states[comm.rank], comm, recorder, checkpoints)
        finally:
            recorder.close()
        return train_states[comm.rank]

    return run_threads(experiment.ranks, body)


def without_checkpoints(experiment: Experiment) -> Experiment:
    return dataclasses.replace(experiment, checkpoints=Checkpoints(enabled=False))
