"""Experiments that keep checkpoints on disk, or none."""

from __future__ import annotations

import dataclasses
from typing import Any

from minga.runs.experiment import Checkpoints, Cluster, Experiment, Training


def experiment_of(strategy: Any, nodes: int, *, every_steps: int = 7, keep: int = 100, **training: Any) -> Experiment:
    return Experiment(
        workload="blobs",
        strategy=strategy,
        cluster=Cluster(nodes=nodes),
        training=Training(**{"steps": 30, "evaluate_every": 0, **training}),
        checkpoints=Checkpoints(every_steps=every_steps, every_seconds=0, keep=keep, keep_best=False),
    )


def without_checkpoints(experiment: Experiment) -> Experiment:
    return dataclasses.replace(experiment, checkpoints=Checkpoints(enabled=False))
