"""How long to wait for another rank before saying that it hangs: by how long steps have taken so far.

    times = StepTimes(heartbeat_timeout_seconds=5)
    times.stepped()                  # after each step
    times.patience                   # seconds

A process that hangs in its own program still gives signs of life, so nobody but those who wait for it can tell. But a
slow machine, an evaluation or a disk make others wait too.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

__all__ = ["StepTimes"]

_REMEMBERED = 100
_FEWEST_STEPS = 5
_LONGEST_STEPS = 10
_HEARTBEATS = 4


class StepTimes:
    """Of one rank, from step to step, with everything that lies between them."""

    def __init__(self, heartbeat_timeout_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._least = _HEARTBEATS * heartbeat_timeout_seconds
        self._clock = clock
        self._last: float | None = None
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)

    def stepped(self) -> None:
        now = self._clock()
        if self._last is not None:
            self._seconds.append(now - self._last)
        self._last = now

    def pause(self) -> None:
        """What comes now is no step."""
        self._last = None

    @property
    def longest(self) -> float:
        """Seconds of the longest of the last steps; 0 where there was none."""
        return max(self._seconds, default=0.0)

    @property
    def patience(self) -> float:
        """Ten of the longest steps, at least four heartbeats' deadlines; without end while nothing is known."""
        if self._last is None or len(self._seconds) < _FEWEST_STEPS:
            return math.inf
        return max(self._least, _LONGEST_STEPS * self.longest)
