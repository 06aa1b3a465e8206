"""Training in threads with checkpoints on disk, and going on from one of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from minga.checkpoints.files import Checkpoint
from minga.checkpoints.keeper import DiskKeeper
from minga.checkpoints.resume import Resumption
from minga.checkpoints.writer import Part
from minga.comm.threads import run_threads
from minga.comm.transport import Transport
from minga.experiment import Checkpoints, Cluster, Experiment, Training
from minga.measure.recorder import Recorder
from minga.run_directory import event_file
from minga.train import train
from minga.trainee import Trainee, build_trainee
from minga.workload import Workload


class PatientKeeper(DiskKeeper):
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
) -> list[Trainee]:
    """Train in threads; what was trained on each rank."""
    trainees = [build_trainee(experiment, workload, rank) for rank in range(experiment.ranks)]

    def body(comm: Transport) -> Trainee:
        recorder = Recorder(event_file(run, comm.rank))
        checkpoint = Checkpoint(run / "checkpoints" / resume) if resume else None
        keeper = PatientKeeper(
            run,
            experiment.checkpoints,
            trainees[comm.rank],
            recorder,
            resumption=None if checkpoint is None else Resumption(checkpoint),
            **options,
        )
        try:
            train(experiment, trainees[comm.rank], comm, recorder, keeper)
        finally:
            recorder.close()
        return trainees[comm.rank]

    return run_threads(experiment.ranks, body)


def without_checkpoints(experiment: Experiment) -> Experiment:
    return dataclasses.replace(experiment, checkpoints=Checkpoints(enabled=False))
