"""Energy counters of the machine: RAPL for processors, NVML for GPUs; and its power while a run goes on.

    with machine_power(run, interval_seconds=0.5, gpus=False):
        ...                                  # events/machine.jsonl grows, where there are counters

A counter says how many joules each of its devices has used since some moment in the past. One thread in the launching
process reads them: the counters are the machine's, not a process's.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minga.measure.event_reader import machine_event_file
from minga.measure.events import Powered
from minga.measure.kernel import ROOT, read
from minga.measure.meter import Ticker
from minga.measure.recorder import Recorder

__all__ = ["EnergyCounter", "Nvml", "Rapl", "find_counters", "machine_power"]


class EnergyCounter(ABC):
    """Cumulative energy of some devices."""

    @abstractmethod
    def joules(self) -> dict[str, float]:
        """By device, since some moment in the past that stays the same; they never fall."""


class Rapl(EnergyCounter):
    """Processor packages and their memory, as the kernel's powercap interface shows them.

    Cores and graphics are parts of a package, and `psys` and the zones of `intel-rapl-mmio` count the same packages
    again; none of them is added. The counters start again at zero after `max_energy_range_uj`, which takes many
    minutes even under full load: they must be read more often than that.
    """

    def __init__(self, root: Path = ROOT) -> None:
        """`root`: of the file system. Nothing is counted (`devices` is empty) unless all packages can be read."""
        self._zones: dict[str, Path] = {}
        self._raw: dict[str, int] = {}
        self._joules: dict[str, float] = {}
        zones = sorted((root / "sys/class/powercap").glob("intel-rapl:*"))
        packages = [zone for zone in zones if re.fullmatch(r"intel-rapl:\d+", zone.name)]
        packages = [zone for zone in packages if (read(zone / "name") or "").startswith("package")]
        if any(_microjoules(zone) is None for zone in packages):
            return
        for package in packages:
            name = read(package / "name") or package.name
            self._add(name, package)
            for part in zones:
                memory = part.name.startswith(f"{package.name}:") and read(part / "name") == "dram"
                if memory and _microjoules(part) is not None:
                    self._add(name.replace("package", "dram"), part)

    @property
    def devices(self) -> list[str]:
        return list(self._zones)

    def joules(self) -> dict[str, float]:
        for device, zone in self._zones.items():
            raw = _microjoules(zone)
            if raw is None:  # for now; what it missed is in its next reading
                continue
            used = raw - self._raw[device]
            if used < 0:  # it has started again at zero
                used += int(read(zone / "max_energy_range_uj") or 0)
            self._raw[device] = raw
            self._joules[device] += max(0, used) / 1e6
        return dict(self._joules)

    def _add(self, device: str, zone: Path) -> None:
        self._zones[device] = zone
        self._raw[device] = _microjoules(zone) or 0
        self._joules[device] = 0.0


class Nvml(EnergyCounter):
    """All NVIDIA GPUs of the machine (from Volta on), as their driver counts. `close` when done."""

    def __init__(self) -> None:
        """Raises ImportError without pynvml, `NVMLError` without a driver or counters."""
        with warnings.catch_warnings():  # the older package of that name warns that there is a newer one
            warnings.simplefilter("ignore")
            self._nvml: Any = importlib.import_module("pynvml")
        self._nvml.nvmlInit()
        try:
            count = int(self._nvml.nvmlDeviceGetCount())
            self._devices = {f"gpu-{index}": self._nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)}
            self.joules()
        except BaseException:
            self.close()
            raise

    def joules(self) -> dict[str, float]:
        count = self._nvml.nvmlDeviceGetTotalEnergyConsumption  # millijoules since the driver was loaded
        return {device: int(count(handle)) / 1000 for device, handle in self._devices.items()}

    def close(self) -> None:
        self._nvml.nvmlShutdown()


@contextlib.contextmanager
def find_counters(*, gpus: bool, root: Path = ROOT) -> Iterator[list[EnergyCounter]]:
    """The counters that can be read here. `gpus`: whether GPUs take part; otherwise they don't count."""
    with contextlib.ExitStack() as opened:
        counters: list[EnergyCounter] = []
        rapl = Rapl(root)
        if rapl.devices:
            counters.append(rapl)
        if gpus:
            try:
                nvml = Nvml()
            except Exception:  # NVMLError can't be named before pynvml is imported; minga doctor shows what is wrong
                pass
            else:
                opened.callback(nvml.close)
                counters.append(nvml)
        yield counters


def _microjoules(zone: Path) -> int | None:
    text = read(zone / "energy_uj") or ""
    return int(text) if text.isdigit() else None


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
