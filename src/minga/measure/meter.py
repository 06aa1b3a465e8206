"""What a rank's process uses while it trains: CPU time, memory, network, and the power that this may take.

    meter = Meter(recorder.emit, Metering(interval_seconds=0.5))
    meter.start(); ...; meter.pause(); ...; meter.resume(); ...; meter.stop()

Samples cover the time of training without gaps and without anything else: one that the end or an evaluation cuts
short covers what there was of it. CPU time is that of all threads of the process; processes that it starts itself,
such as a loader's readers, are not in it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil  # type: ignore[import-untyped]

from minga.measure.energy import estimated_watts
from minga.measure.events import Event, Sampled
from minga.measure.interfaces import InterfaceCounts, read_interfaces

__all__ = ["Meter", "Metering", "Ticker"]


class Ticker:
    """Calls a function every so often from a thread of its own, for the first time after one interval."""

    def __init__(self, interval_seconds: float, function: Callable[[], None], *, name: str) -> None:
        self._interval = interval_seconds
        self._function = function
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """When this returns, it is surely not doing it any more."""
        self._stopped.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        due = time.monotonic() + self._interval
        while not self._stopped.wait(max(0.0, due - time.monotonic())):
            self._function()
            # From now on, should this thread have been kept waiting: two calls in a row would be of no use.
            due = max(due + self._interval, time.monotonic() + self._interval / 2)


@dataclass(frozen=True, kw_only=True)
class Metering:
    """How a process is measured."""

    interval_seconds: float = 0.0
    """Between two samples; 0: none are taken."""
    idle_watts: float = 5.0
    core_watts: float = 10.0
    alone_on_host: bool = False
    """Whether the host's interfaces carry this process's traffic and no other."""

    def read_interfaces(self) -> InterfaceCounts | None:
        return read_interfaces() if self.alone_on_host else None


class Meter:
    """Samples what this process uses."""

    def __init__(self, emit: Callable[[Event], None], metering: Metering) -> None:
        self._emit = emit
        self._metering = metering
        self._process = psutil.Process()
        self._ticker: Ticker | None = None
        self._lock = threading.Lock()
        self._running = False
        self._time = 0.0
        self._cpu = 0.0
        self._interfaces: InterfaceCounts | None = None

    def start(self) -> None:
        self.resume()
        self._ticker = Ticker(self._metering.interval_seconds, self._tick, name="meter")

    def pause(self) -> None:
        """Take a last sample, and none until `resume`; what happens in between does not count."""
        with self._lock:
            if self._running:
                self._sample()
            self._running = False

    def resume(self) -> None:
        with self._lock:
            self._running = True
            self._time, self._cpu = time.perf_counter(), time.process_time()
            self._interfaces = self._metering.read_interfaces()

    def stop(self) -> None:
        """Take a last sample; nothing is emitted afterwards."""
        self.pause()
        if self._ticker is not None:
            self._ticker.stop()
            self._ticker = None

    def _tick(self) -> None:
        with self._lock:
            # Soon after a pause there is too little to measure; it comes with the next sample.
            if self._running and time.perf_counter() - self._time > self._metering.interval_seconds / 2:
                self._sample()

    def _sample(self) -> None:
        metering = self._metering
        now, cpu, interfaces = time.perf_counter(), time.process_time(), metering.read_interfaces()
        seconds, cpu_seconds = now - self._time, cpu - self._cpu
        if seconds <= 0:
            return
        traffic: dict[str, Any] = {"bytes_received": None, "bytes_sent": None}
        if interfaces is not None and self._interfaces is not None:
            since = interfaces - self._interfaces
            traffic = {"bytes_received": since.bytes_received, "bytes_sent": since.bytes_sent}
        self._time, self._cpu, self._interfaces = now, cpu, interfaces
        watts = estimated_watts(cpu_seconds, seconds, idle_watts=metering.idle_watts, core_watts=metering.core_watts)
        self._emit(
            Sampled(
                time=now,
                seconds=seconds,
                cpu_seconds=cpu_seconds,
                memory_bytes=self._process.memory_info().rss,
                watts=watts,
                estimated=True,
                **traffic,
            )
        )
