"""A thread that does something every so often.

ticker = Ticker(0.5, sample, name="meter")
ticker.stop()                            # returns when it is surely not doing it any more
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

__all__ = ["Ticker"]


class Ticker:
    """Calls a function from a thread of its own, for the first time after one interval."""

    def __init__(self, interval_seconds: float, function: Callable[[], None], *, name: str) -> None:
        self._interval = interval_seconds
        self._function = function
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        due = time.monotonic() + self._interval
        while not self._stopped.wait(max(0.0, due - time.monotonic())):
            self._function()
            # From now on, should this thread have been kept waiting: two calls in a row would be of no use.
            due = max(due + self._interval, time.monotonic() + self._interval / 2)
