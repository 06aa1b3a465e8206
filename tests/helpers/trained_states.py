"""States of training after some steps of a small problem, by all-reduce on one rank."""

from __future__ import annotations

import dataclasses

from torch import nn

from minga.comm.threads import ThreadWorld
from minga.runs.experiment import Experiment, Training
from minga.runs.workload import Workload
from minga.strategies import AllReduce
from minga.testing.problems import adam, blobs
from minga.training.train_state import TrainState, build_train_state

STRATEGY = AllReduce()


def with_batch_norm(workload: Workload) -> Workload:
    def model() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3)).double()

    return dataclasses.replace(workload, model=model)


def trained(steps: int = 5, *, seed: int = 0, workload: Workload | None = None) -> TrainState:
    workload = workload or with_batch_norm(blobs(optimizer=adam))
    train_state = build_train_state(Experiment(workload="blobs", training=Training(steps=9, seed=seed)), workload, 0)
    STRATEGY.start(train_state.replica, ThreadWorld(1).transport(0))
    for _ in range(steps):
        train_state.replica.step += 1
        share = train_state.order.take(0, 1, 8)
        batch = workload.train[share.indices]
        train_state.replica.compute_gradients(lambda batch=batch: train_state.loss_of(batch))
        train_state.replica.update()
    return train_state
