"""What is done when a process ends, as a table."""

from __future__ import annotations

import itertools
import signal

import pytest

from minga.launch.policy import LEFT_BEHIND, POLICIES, STOPPED, Action, How, Phase, Who, action, how_of


def test_every_case_has_an_answer() -> None:
    assert set(POLICIES) == set(itertools.product(Who, How))
    assert all(len(row) == len(Phase) for row in POLICIES.values())


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (0, How.DONE),
        (1, How.FAILED),
        (2, How.FAILED),
        (STOPPED, How.STOPPED),
        (LEFT_BEHIND, How.LEFT_BEHIND),
        (-signal.SIGKILL, How.KILLED),
        (-signal.SIGTERM, How.KILLED),
    ],
)
def test_how_a_process_has_ended_is_in_its_code(code: int, how: How) -> None:
    assert how_of(code) is how


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("who", [Who.RANK, Who.WORKER, Who.SERVER])
def test_a_program_s_error_ends_the_run(who: Who, phase: Phase) -> None:
    assert action(who, How.FAILED, phase) is Action.FAIL


@pytest.mark.parametrize(
    ("who", "how", "phase", "expected"),
    [
        # Nobody can begin without those that are expected, and nobody has lost anything yet.
        (Who.WORKER, How.KILLED, Phase.FORMING, Action.RESTART),
        (Who.SERVER, How.KILLED, Phase.FORMING, Action.RESTART),
        # Workers are done without; what a server has nobody else has.
        (Who.WORKER, How.KILLED, Phase.RUNNING, Action.GO_ON),
        (Who.WORKER, How.LEFT_BEHIND, Phase.RUNNING, Action.GO_ON),
        (Who.SERVER, How.KILLED, Phase.RUNNING, Action.RESTART),
        (Who.SUBSTITUTE, How.KILLED, Phase.RUNNING, Action.RESTART),
        # Nobody is brought back to a run that ends.
        (Who.WORKER, How.KILLED, Phase.STOPPING, Action.GO_ON),
        (Who.SERVER, How.KILLED, Phase.STOPPING, Action.GO_ON),
        (Who.SERVER, How.KILLED, Phase.DONE, Action.GO_ON),
        # A substitute that comes when all is over finds nobody.
        (Who.SUBSTITUTE, How.FAILED, Phase.DONE, Action.GO_ON),
        (Who.SUBSTITUTE, How.FAILED, Phase.RUNNING, Action.FAIL),
        # A group that stays as it is can't do without anybody.
        (Who.RANK, How.KILLED, Phase.RUNNING, Action.FAIL),
        (Who.RANK, How.LEFT_BEHIND, Phase.RUNNING, Action.FAIL),
        (Who.HELPER, How.KILLED, Phase.RUNNING, Action.FAIL),
        (Who.HELPER, How.KILLED, Phase.DONE, Action.GO_ON),
        # Training goes on without a coordinator, unless it is the one that others elsewhere need too.
        (Who.COORDINATOR, How.FAILED, Phase.FORMING, Action.FAIL),
        (Who.COORDINATOR, How.KILLED, Phase.RUNNING, Action.RESTART_OR_GO_ON),
        (Who.COORDINATOR, How.DONE, Phase.RUNNING, Action.GO_ON),
        (Who.OPEN_COORDINATOR, How.FAILED, Phase.FORMING, Action.FAIL),
        (Who.OPEN_COORDINATOR, How.KILLED, Phase.RUNNING, Action.RESTART),
        (Who.OPEN_COORDINATOR, How.DONE, Phase.RUNNING, Action.FINISH),
        (Who.OPEN_COORDINATOR, How.LEFT_BEHIND, Phase.RUNNING, Action.GO_ON),
    ],
)
def test_what_is_done(who: Who, how: How, phase: Phase, expected: Action) -> None:
    assert action(who, how, phase) is expected


@pytest.mark.parametrize("who", [who for who in Who if who not in (Who.COORDINATOR, Who.OPEN_COORDINATOR, Who.HELPER)])
def test_who_comes_to_the_end_or_stops_says_so_for_the_run(who: Who) -> None:
    assert {action(who, How.DONE, phase) for phase in Phase} == {Action.FINISH}
    assert {action(who, How.STOPPED, phase) for phase in Phase} == {Action.STOP}
