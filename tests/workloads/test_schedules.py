"""Learning rates rise quickly, fall slowly, and never stop."""

from __future__ import annotations

import itertools

import pytest

from minga.workloads.schedules import warm_up_and_fall

MOMENTS = [moment / 1000 for moment in range(1001)]


def test_the_full_rate_is_reached_after_a_twentieth() -> None:
    assert warm_up_and_fall(0.05) == pytest.approx(1.0)
    assert max(warm_up_and_fall(moment) for moment in MOMENTS) == pytest.approx(1.0)


def test_it_rises_and_then_falls() -> None:
    before = [warm_up_and_fall(moment) for moment in MOMENTS if moment <= 0.05]
    after = [warm_up_and_fall(moment) for moment in MOMENTS if moment >= 0.05]
    assert all(left <= right for left, right in itertools.pairwise(before))
    assert all(left > right for left, right in itertools.pairwise(after))


def test_no_step_is_in_vain() -> None:
    assert min(warm_up_and_fall(moment) for moment in MOMENTS) == pytest.approx(0.01)
    assert warm_up_and_fall(1.0) == pytest.approx(0.01)
