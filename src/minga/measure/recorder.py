"""Writes a rank's events to its file, a few times a second.

    recorder = Recorder(path)
    recorder.emit(RankServing(time=recorder.now())); recorder.close()

Spans and traffic belong to the training thread; events may come from any thread.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from minga.measure.events import Event, step_line
from minga.measure.meter import Meter, Metering
from minga.measure.spans import Spans
from minga.measure.traffic import Traffic

__all__ = ["Recorder"]

_FLUSH_SECONDS = 0.2
_MOST_UNWRITTEN = 1 << 20

_LOG = logging.getLogger(__name__)


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
        self._file: FileIO | None = None
        self._unwritten = bytearray()
        """What the disk has not taken yet; the first line may be on it in part."""
        self._warned = False
        self._flushed = time.monotonic()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.has_history = path.is_file() and path.stat().st_size > 0
            self._file = path.open("ab", buffering=0)

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
                with contextlib.suppress(OSError):
                    self._file.close()
                self._file = None

    def _flush(self) -> None:
        if self._file is None:
            return
        waiting, self._waiting = self._waiting, []  # first of all: an event that is no JSON must not come again
        self._flushed = time.monotonic()
        for event in waiting:
            line = step_line(*event) if isinstance(event, tuple) else event.to_json()
            self._unwritten += line.encode() + b"\n"
        try:
            while self._unwritten:
                del self._unwritten[: self._file.write(self._unwritten)]
        except OSError as error:  # a full disk, say: events are worth less than the training
            self._keep_for_later(error)

    def _keep_for_later(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            _LOG.warning("events can't be written (%s); training goes on, and the last ones may be lost", error)
        if len(self._unwritten) > _MOST_UNWRITTEN:
            del self._unwritten[self._unwritten.rfind(b"\n", 0, _MOST_UNWRITTEN) + 1 :]
