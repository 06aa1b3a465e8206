"""Writes a rank's events to its file, a few times a second.

    recorder = Recorder(path)
    recorder.emit(Serving(time=recorder.now())); recorder.close()

Spans and traffic belong to the training thread; events may come from any thread.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from minga.comm.traced import Traffic
from minga.measure.events import Event, step_line
from minga.measure.meter import Meter, Metering
from minga.measure.spans import Spans

__all__ = ["Recorder"]

_FLUSH_SECONDS = 0.2


class Recorder:
    """Where a rank's events and times go."""

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.perf_counter) -> None:
        """`path`: the rank's event file; None: nothing is kept."""
        self.now = clock
        self.spans = Spans(clock)
        self.traffic = Traffic()
        self.has_history = False
        """Whether the file has events of before: of a run that goes on."""
        self._meter: Meter | None = None
        self._lock = threading.Lock()
        self._waiting: list[Event | tuple[Any, ...]] = []
        self._file: TextIO | None = None
        self._flushed = time.monotonic()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.has_history = path.is_file() and path.stat().st_size > 0
            self._file = path.open("a", encoding="utf-8")

    @property
    def keeps_events(self) -> bool:
        return self._file is not None

    def emit(self, event: Event | tuple[Any, ...]) -> None:
        """Keep an event; those of steps, of which there are many, come as the arguments of `step_line`."""
        if self._file is None:
            return
        with self._lock:
            # Turned into text many at a time: in the middle of a step the caches are full of the model, and the same
            # work takes several times as long.
            self._waiting.append(event)
            if time.monotonic() - self._flushed > _FLUSH_SECONDS:
                self._flush()

    def flush(self) -> None:
        with self._lock:
            self._flush()

    def start_meter(self, metering: Metering) -> None:
        """Sample what this process uses, until `stop_meter` or `close`; not where nothing is kept."""
        if self._file is not None and metering.interval_seconds:
            self._meter = Meter(self.emit, metering)
            self._meter.start()

    @contextlib.contextmanager
    def meter_paused(self) -> Iterator[None]:
        """What happens meanwhile is in no sample."""
        if self._meter is not None:
            self._meter.pause()
        yield
        if self._meter is not None:
            self._meter.resume()

    def stop_meter(self) -> None:
        if self._meter is not None:
            self._meter.stop()
            self._meter = None

    def close(self) -> None:
        self.stop_meter()
        with self._lock:
            if self._file is not None:
                self._flush()
                self._file.close()
                self._file = None

    def _flush(self) -> None:
        if self._file is not None:
            waiting, self._waiting = self._waiting, []  # first of all: an event that is no JSON must not come again
            for event in waiting:
                line = step_line(*event) if isinstance(event, tuple) else event.to_json()
                self._file.write(line + "\n")
            self._file.flush()
            self._flushed = time.monotonic()
