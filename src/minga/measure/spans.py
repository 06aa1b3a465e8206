"""Where a rank's time goes: spans with names, each counted without what is nested in it.

with spans.span("exchange"):
    with spans.span("wait"): ...        # counts as wait, not as exchange
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

__all__ = ["NO_SPANS", "Spans"]


class Spans:
    """Seconds by name, since the last `take()`. For one thread.

    Every step opens half a dozen of them, so they are made to cost little: one object for each name, used again.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._spans: dict[str, _Span] = {}
        self._open: list[_Span] = []
        self._since = 0.0

    def span(self, name: str) -> AbstractContextManager[None]:
        span = self._spans.get(name)
        if span is None:
            span = self._spans[name] = _Span(self)
        return span

    def take(self) -> dict[str, float]:
        """What has been counted; start again from zero."""
        self._charge()
        taken = {}
        for name, span in self._spans.items():
            if span.seconds:
                taken[name] = span.seconds
                span.seconds = 0.0
        return taken

    def _charge(self) -> None:
        """Give the time since the last change to the innermost open span."""
        now = self._clock()
        if self._open:
            self._open[-1].seconds += now - self._since
        self._since = now


class _Span(AbstractContextManager[None]):
    """Opened and closed as often as one likes, also inside itself."""

    __slots__ = ("_spans", "seconds")

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self.seconds = 0.0

    # Both charge the innermost open span, as Spans._charge does; written out, since calls are most of what they cost.

    def __enter__(self) -> None:
        spans = self._spans
        now, opened = spans._clock(), spans._open
        if opened:
            opened[-1].seconds += now - spans._since
        spans._since = now
        opened.append(self)

    def __exit__(self, *_: object) -> None:
        spans = self._spans
        now = spans._clock()
        spans._open.pop().seconds += now - spans._since
        spans._since = now


class _NoSpans(Spans):
    """For replicas that nobody measures; shared, so it must not keep anything."""

    _nothing: AbstractContextManager[None] = contextlib.nullcontext()

    def span(self, name: str) -> AbstractContextManager[None]:
        return self._nothing


NO_SPANS = _NoSpans()
