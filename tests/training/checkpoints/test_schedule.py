"""When checkpoints are taken: at the same step on all ranks that are in step."""

from __future__ import annotations

import itertools

import pytest

from minga.comm.threads import ThreadTransport, ThreadWorld, run_threads
from minga.comm.traced import TracedTransport
from minga.comm.transport import Transport
from minga.measure.traffic import Traffic
from minga.runs.experiment import Checkpoints
from minga.training.checkpoints.schedule import LAST_MOMENT, CheckpointSchedule, Verdict


class Clock(TracedTransport):
    """A transport whose clock goes at a speed of its own."""

    def __init__(self, inner: Transport, seconds_per_step: float) -> None:
        super().__init__(inner, Traffic())
        self.time = 100.0
        self.seconds_per_step = seconds_per_step

    def now(self) -> float:
        return self.time


def verdicts(
    settings: Checkpoints, ranks: int, steps: int, *, lockstep: bool = True, stop_at: int = 1 << 30, speed: float = 0.01
) -> list[dict[int, Verdict]]:
    """What each rank does at which step; the clocks of later ranks go faster and faster."""

    def body(comm: Transport) -> dict[int, Verdict]:
        clock = Clock(comm, speed * (1 + comm.rank))
        moments = CheckpointSchedule(settings)
        found = {}
        for step in range(1, steps + 1):
            clock.time += clock.seconds_per_step
            together = clock if lockstep else Clock(ThreadWorld(1).transport(0), 0)
            together.time = clock.time  # type: ignore[attr-defined]
            # Only rank 0 is asked to stop: the others follow it.
            verdict = moments.after(step, together, lockstep=lockstep, stopping=step >= stop_at and comm.rank == 0)
            if verdict:
                found[step if lockstep else moments.number] = verdict
            if verdict is Verdict.STOP:
                break
        return found

    return run_threads(ranks, body)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_by_time_all_ranks_take_the_same_steps_though_their_clocks_differ(ranks: int) -> None:
    found = verdicts(Checkpoints(every_seconds=1.0), ranks, 500)
    assert all(each == found[0] for each in found)
    steps = list(found[0])
    assert 4 <= len(steps) <= 5  # 5 seconds of rank 0's clock, and a little later each time
    gaps = [later - earlier for earlier, later in itertools.pairwise(steps)]
    assert all(100 <= gap <= 140 for gap in gaps)


def test_by_steps_is_exact() -> None:
    found = verdicts(Checkpoints(every_seconds=0, every_steps=7), 3, 30)
    assert [list(each) for each in found] == [[7, 14, 21, 28]] * 3


@pytest.mark.parametrize("ranks", [1, 3])
def test_all_stop_at_the_same_step_soon_after_one_is_asked(ranks: int) -> None:
    found = verdicts(Checkpoints(every_seconds=0), ranks, 5000, stop_at=200)
    assert all(each == found[0] for each in found)
    ((step, verdict),) = found[0].items()
    assert verdict is Verdict.STOP
    assert 200 <= step <= 225  # words are 10 steps, 0.1 s, apart


def test_ranks_that_are_not_in_step_have_moments_of_the_same_names() -> None:
    found = verdicts(Checkpoints(every_seconds=1.0), 2, 350, lockstep=False)
    assert list(found[0]) == [1, 2, 3]
    assert list(found[1]) == [1, 2, 3, 4, 5, 6]  # its clock goes twice as fast
    stopped = verdicts(Checkpoints(every_seconds=0), 1, 350, lockstep=False, stop_at=3)
    assert stopped == [{LAST_MOMENT: Verdict.STOP}]


def test_words_are_few() -> None:
    sent = []

    def body(comm: Transport) -> None:
        assert isinstance(comm, ThreadTransport)
        clock = Clock(comm, 0.001)
        moments = CheckpointSchedule(Checkpoints(every_seconds=60))
        for step in range(1, 2001):  # two seconds
            clock.time += clock.seconds_per_step
            moments.after(step, clock, lockstep=True, stopping=False)
        if comm.rank == 0:
            sent.append(clock._traffic.messages)

    run_threads(2, body)
    assert 15 <= sent[0] <= 40
