"""So often within so many seconds, and not more often: lines in a log, processes that are started again.

lines = RateLimit(20, seconds=1.0)
if lines.take(): log.warning(...)       # lines.refused: how many were not, since the last that was
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

__all__ = ["RateLimit"]


class RateLimit:
    """Counts over a window of time."""

    def __init__(self, most: int, *, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._taken: deque[float] = deque()
        self.refused = 0
        """How often it was not allowed, since it was the last time but one."""
        self._refusing = 0

    def take(self) -> bool:
        """Whether it is allowed once more."""
        now = self._clock()
        while self._taken and self._taken[0] <= now - self._seconds:
            self._taken.popleft()
        if len(self._taken) >= self._most:
            self._refusing += 1
            return False
        self._taken.append(now)
        self.refused, self._refusing = self._refusing, 0
        return True
