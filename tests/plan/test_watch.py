"""`auto` looks again when steps take another time than they did, on all ranks at the same step, and not for nothing."""

from __future__ import annotations

import pytest

from minga.comm.simulated import SimulatedTransport, SimulatedWorld
from minga.plan.own_steps import Watch
from minga.runs.network import Network
from minga.simulate.wiring import wires_of


def noticed_at(seconds: list[float], *, until: float = 0.0) -> int | None:
    """After which of these steps, counted from 0, it is time to look again."""
    world = SimulatedWorld(wires_of(Network(delay="1us"), 3), range(3))  # type: ignore[arg-type]

    def body(rank: int) -> int | None:
        comm = SimulatedTransport(world, rank)
        watch = Watch(until=until, last=0.0)
        for number, spent in enumerate(seconds):
            comm.sleep(spent)
            if watch.changed(comm):
                return number
        watch.complete()
        return None

    first, *others = world.run(body)
    assert others == [first, first], "ranks disagree"
    return first


USUAL = [1.0] * 8


@pytest.mark.parametrize("other", [2.0, 0.5])
def test_two_strange_steps_in_a_row_are_a_change(other: float) -> None:
    assert noticed_at([*USUAL, other, other, other]) == 10, "all hear of it a step later"


@pytest.mark.parametrize("other", [1.3, 0.8, 1.0])
def test_a_little_more_or_less_is_none(other: float) -> None:
    assert noticed_at([*USUAL, *[other] * 20]) is None


def test_a_single_strange_step_is_none() -> None:
    assert noticed_at([*USUAL, *[2.0, 1.0] * 10]) is None


def test_nobody_looks_again_before_it_is_time() -> None:
    assert noticed_at([*USUAL, *[2.0] * 5], until=100.0) is None
    assert noticed_at([*USUAL, *[2.0] * 5], until=13.0) == 11


def test_differences_of_a_machine_itself_are_none() -> None:
    assert noticed_at([*[0.001] * 8, *[0.0035] * 5]) is None
