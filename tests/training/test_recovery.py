"""Ranks that recover, and are interrupted in that."""

from __future__ import annotations

import dataclasses

import torch
from test_snapshot import STRATEGY, trained
from torch import nn

from minga.comm.threads import ThreadWorld, run_threads
from minga.strategies import LocalSGD
from minga.testing.problems import adam, blobs
from minga.training.recovery import recover
from minga.training.train_state import Beginning


def test_to_recover_twice_is_the_same_as_once() -> None:
    """If somebody dies before anybody has trained on: what is owed is still owed."""
    train_state = trained(0)
    train_state.beginning = Beginning(0, train_state.order.copy(), 0, 2)
    train_state.replica.progress.last_applied_step = 4
    train_state.replica.progress.begin(1, 2)  # three steps of the other one are in nobody's model
    assert recover(train_state, LocalSGD(), ThreadWorld(1).transport(0)) == 4
    position = train_state.order.position()
    assert position["owed"]
    assert recover(train_state, LocalSGD(), ThreadWorld(1).transport(0)) == 4
    assert train_state.order.position() == position


def test_all_take_what_the_one_furthest_ahead_has() -> None:
    """A survivor that is a step behind and one who has just come end where the first one is, Adam's memory included."""
    behind, ahead, joining = train_states = trained(4), trained(5), trained(0, seed=1)
    for survivor in (behind, ahead):
        survivor.beginning = Beginning(0, trained(0).order.copy(), 0, 1)
    expected = ahead.replica.parameters.clone()
    assert run_threads(3, lambda comm: recover(train_states[comm.rank], STRATEGY, comm)) == [5, 5, 5]
    for train_state in train_states:
        assert train_state.replica.step == train_state.replica.progress.last_applied_step == 5
        assert torch.equal(train_state.replica.parameters, expected)
        assert train_state.order.position() == ahead.order.position() != trained(0).order.position()
        train_state.replica.gradients.fill_(0.5)
        train_state.replica.update()
    assert torch.equal(joining.replica.parameters, ahead.replica.parameters)
    assert torch.equal(behind.replica.parameters, ahead.replica.parameters)


def test_frozen_weights_may_be_much_larger_than_what_is_trained() -> None:
    def model() -> nn.Module:
        made: nn.Module = blobs().model()
        backbone = torch.zeros(9 << 20, dtype=torch.float64)
        made.register_parameter("backbone", nn.Parameter(backbone, requires_grad=False))
        return made

    workload = dataclasses.replace(blobs(optimizer=adam), model=model)
    ahead, joining = train_states = trained(1, workload=workload), trained(0, seed=1, workload=workload)
    ahead.beginning = Beginning(0, trained(0).order.copy(), 0, 1)
    assert run_threads(2, lambda comm: recover(train_states[comm.rank], STRATEGY, comm)) == [1, 1]
    assert torch.equal(joining.replica.parameters, ahead.replica.parameters)
