"""So often within so many seconds."""

from __future__ import annotations

from minga.base.rate_limit import RateLimit


def test_within_the_window_it_is_used_up_and_afterwards_there_again() -> None:
    now = 0.0
    lines = RateLimit(2, seconds=10.0, clock=lambda: now)
    assert [lines.take() for _ in range(4)] == [True, True, False, False]
    now = 9.9
    assert not lines.take()
    now = 10.0
    assert lines.take() and lines.refused == 3
    assert lines.take() and lines.refused == 0
    assert not lines.take()
