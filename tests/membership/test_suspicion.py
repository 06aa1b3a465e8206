"""How long others are waited for."""

from __future__ import annotations

import math

from minga.membership.suspicion import StepTimes


def test_patience_follows_the_longest_step() -> None:
    now = 0.0
    times = StepTimes(5.0, clock=lambda: now)
    found = []
    for seconds in (0, 1, 1, 1, 1, 1, 3, 1):
        now += seconds
        times.stepped()
        found.append(times.patience)
    assert found == [math.inf] * 5 + [20.0, 30.0, 30.0]


def test_what_is_no_step_does_not_count_and_takes_as_long_as_it_takes() -> None:
    now = 0.0
    times = StepTimes(0.1, clock=lambda: now)
    for _ in range(8):
        now += 1
        times.stepped()
    assert times.patience == 10
    times.pause()
    assert times.patience == math.inf
    now += 500
    times.stepped()
    assert times.patience == 10
