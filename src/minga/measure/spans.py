"""Where a rank's time goes: spans with names, each counted without what is nested in it.

with spans.span("exchange"):
    with spans.span("wait"): ...        # counts as wait, not as exchange
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["NO_SPANS", "Spans"]


class Spans:
    """Seconds by name, since the last `take()`. For one thread."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds: dict[str, float] = {}
        self._open: list[str] = []
        self._since = 0.0

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def take(self) -> dict[str, float]:
        """What has been counted; start again from zero."""
        self._charge()
        taken, self._seconds = self._seconds, {}
        return taken

    def _charge(self) -> None:
        """Give the time since the last change to the innermost open span."""
        now = self._clock()
        if self._open:
            name = self._open[-1]
            self._seconds[name] = self._seconds.get(name, 0.0) + now - self._since
        self._since = now


class _NoSpans(Spans):
    """For replicas that nobody measures; shared, so it must not keep anything."""

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        yield


NO_SPANS = _NoSpans()
