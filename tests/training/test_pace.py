"""A host with half a core takes twice as long, in short bursts too."""

from __future__ import annotations

import time
from typing import Any

import pytest

from minga import Cluster, Experiment
from minga.comm.threads import ThreadWorld
from minga.measure.spans import Spans
from minga.training.pace import Pace


def pace_of(**cluster: Any) -> tuple[Pace, list[float], Spans]:
    """A pace whose sleeps are only written down."""
    comm = ThreadWorld(1).transport(0)
    slept: list[float] = []
    comm.sleep = slept.append  # type: ignore[method-assign]
    spans = Spans()
    return Pace(Experiment(workload="digits", cluster=Cluster(**cluster)), comm, spans), slept, spans


def work(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_a_whole_core_is_left_alone() -> None:
    for cluster in ({}, {"cpu": (1.0,)}, {"cpu": (4.0,)}):
        pace, slept, spans = pace_of(**cluster)
        with pace.computing():
            work(0.001)
        assert slept == []
        assert "slowdown" not in spans.take()


@pytest.mark.parametrize(("share", "factor"), [(0.5, 1.0), (0.25, 3.0)])
def test_what_the_kernel_has_not_held_back_is_made_up_for(share: float, factor: float) -> None:
    pace, slept, spans = pace_of(cpu=(share,))
    for _ in range(5):
        with pace.computing():
            work(0.01)
    assert all(0.009 * factor < each < 0.013 * factor for each in slept)
    assert "slowdown" in spans.take()


def test_what_is_not_computing_is_left_to_the_kernel() -> None:
    pace, slept, _ = pace_of(cpu=(0.5,))
    work(0.02)  # an evaluation, say, which is no training
    with pace.computing():
        pass
    assert slept[0] < 0.005


def test_two_threads_share_what_the_host_has() -> None:
    pace, slept, _ = pace_of(cpu=(1.0,), threads=2)
    with pace.computing():
        work(0.01)
    assert slept[0] > 0.004


def test_what_the_kernel_has_held_back_already_is_not_taken_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    throttled = iter([1.0, 1.1])
    monkeypatch.setattr("minga.training.pace.throttled_seconds", lambda group: next(throttled))
    pace, slept, _ = pace_of(cpu=(0.5,))
    with pace.computing():
        work(0.01)
    assert slept == [0.0]


def test_what_others_hold_back_is_not_taken_for_the_kernels_doing() -> None:
    pace, slept, _ = pace_of(cpu=(0.5,))
    with pace.computing():
        work(0.01)
        time.sleep(0.03)  # as if another process had the core
    assert slept[0] > 0.008


def test_a_pretended_speed_goes_by_the_time_that_computing_took() -> None:
    pace, slept, _ = pace_of(speeds=(0.25,))
    with pace.computing():
        time.sleep(0.01)
    assert 0.03 <= slept[0] < 0.06
