"""The power of the whole machine while a run goes on, in a file beside those of the ranks.

    with machine_power(run, interval_seconds=0.5, gpus=False):
        ...                                  # events/machine.jsonl grows, where there are counters

One thread in the launching process is enough: the counters are the machine's, not a process's.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from minga.measure.counters import EnergyCounter, find_counters
from minga.measure.event_reader import machine_event_file
from minga.measure.events import Powered
from minga.measure.machine.files import ROOT
from minga.measure.recorder import Recorder
from minga.measure.ticker import Ticker

__all__ = ["machine_power"]


@contextlib.contextmanager
def machine_power(run: Path, *, interval_seconds: float, gpus: bool, root: Path = ROOT) -> Iterator[None]:
    """Write the machine's power every so often, until the block ends; nothing without counters or interval."""
    with find_counters(gpus=gpus, root=root) as counters:
        if not counters or not interval_seconds:
            yield
            return
        recorder = Recorder(machine_event_file(run))
        sampler = _Sampler(counters, recorder)
        ticker = Ticker(interval_seconds, sampler.sample, name="machine power")
        try:
            yield
        finally:
            ticker.stop()
            sampler.sample()
            recorder.close()


class _Sampler:
    def __init__(self, counters: list[EnergyCounter], recorder: Recorder) -> None:
        self._counters = counters
        self._recorder = recorder
        self._joules = self._read()
        self._time = time.perf_counter()

    def _read(self) -> dict[str, float]:
        return {device: joules for counter in self._counters for device, joules in counter.joules().items()}

    def sample(self) -> None:
        if not self._counters:
            return
        try:
            joules, now = self._read(), time.perf_counter()
        except Exception as error:  # a GPU that is lost, a file that is gone: no reason to lose a training
            self._counters = []
            warnings.warn(f"an energy counter fails, so energy is not measured any more: {error}", stacklevel=2)
            return
        seconds = now - self._time
        watts = {device: (value - self._joules[device]) / seconds for device, value in joules.items()}
        self._joules, self._time = joules, now
        self._recorder.emit(Powered(time=now, seconds=seconds, watts=watts))
