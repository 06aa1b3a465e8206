"""Writes a rank's events to its file, a few times a second."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TextIO

from minga.comm.traced import Traffic
from minga.measure.events import Event
from minga.measure.spans import Spans

__all__ = ["Recorder"]

_FLUSH_SECONDS = 0.2


class Recorder:
    """Where a rank's events and times go."""

    def __init__(self, path: Path | None) -> None:
        """`path`: the rank's event file; None: nothing is kept."""
        self.spans = Spans()
        self.traffic = Traffic()
        self._file: TextIO | None = None
        self._flushed = time.monotonic()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8")

    def now(self) -> float:
        return time.perf_counter()

    def emit(self, event: Event) -> None:
        if self._file is None:
            return
        self._file.write(event.to_json() + "\n")
        if time.monotonic() - self._flushed > _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
