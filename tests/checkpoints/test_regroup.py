"""Ranks that come together anew, and are interrupted in that."""

from __future__ import annotations

from test_training_state import STRATEGY, trained

from minga.comm.threads import ThreadWorld
from minga.regroup import regroup
from minga.trainee import Beginning


def test_to_come_together_twice_is_the_same_as_once() -> None:
    """If somebody dies before anybody has trained on: what is owed is still owed."""
    trainee = trained(0)
    trainee.beginning = Beginning(0, trainee.order.copy(), 0, 2)
    trainee.replica.applied, trainee.replica.heard = 4, [4, 1]  # three steps of the other one are in nobody's model
    assert regroup(trainee, STRATEGY, ThreadWorld(1).transport(0)) == 4
    position = trainee.order.position()
    assert position["owed"]
    assert regroup(trainee, STRATEGY, ThreadWorld(1).transport(0)) == 4
    assert trainee.order.position() == position
