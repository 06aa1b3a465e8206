"""Samples that were cut short."""

from __future__ import annotations

import pytest

from minga.measure.events import Sampled
from minga.report.figures.resources import join_short


def sample(end: float, seconds: float, cores: float, sent: int | None = None) -> Sampled:
    return Sampled(
        time=end,
        seconds=seconds,
        cpu_seconds=cores * seconds,
        memory_bytes=int(1e6 * end),
        bytes_sent=sent,
        bytes_received=sent,
        watts=10 * cores,
        estimated=True,
    )


def test_a_short_one_is_joined_to_the_next_and_nothing_gets_lost() -> None:
    samples = [
        sample(1, 0.5, 0.2, 100),
        sample(1.51, 0.01, 1.0, 50),
        sample(2, 0.49, 0.2, 100),
        sample(2.5, 0.5, 0.2, 100),
    ]
    joined = join_short(samples)
    assert [each.time for each in joined] == [1, 2, 2.5]
    assert joined[1].seconds == pytest.approx(0.5)
    assert joined[1].cpu_seconds == pytest.approx(0.01 + 0.098)
    assert joined[1].bytes_sent == 150
    assert joined[1].watts * 0.5 == pytest.approx(0.01 * 10 + 0.49 * 2)
    for total in ("seconds", "cpu_seconds", "bytes_sent"):
        assert sum(getattr(each, total) for each in joined) == pytest.approx(
            sum(getattr(each, total) for each in samples)
        )


def test_a_short_end_goes_to_the_one_before() -> None:
    joined = join_short([sample(1, 0.5, 0.2), sample(1.5, 0.5, 0.2), sample(1.51, 0.01, 1.0)])
    assert [each.time for each in joined] == [1, 1.51]
    assert joined[1].bytes_sent is None


def test_few_or_none_stay_as_they_are() -> None:
    assert join_short([]) == []
    only = [sample(0.1, 0.1, 1.0)]
    assert join_short(only) == only
