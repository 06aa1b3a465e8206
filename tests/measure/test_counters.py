"""Energy counters: a directory in place of /sys, whose counters advance; a stand-in for NVML."""

from __future__ import annotations

import itertools
import sys
import threading
import time
import types
from pathlib import Path

import pytest

from minga.measure.counters import Nvml, Rapl, find_counters, machine_power
from minga.measure.energy import PowerSample, joules_of
from minga.measure.event_reader import machine_event_file, read_events
from minga.measure.events import Powered

RANGE = 262_143_328_850


class Zones:
    """A machine's root with RAPL zones."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._powercap = root / "sys/class/powercap"
        self._powercap.mkdir(parents=True)

    def set(self, zone: str, name: str, microjoules: int, wrap: int = RANGE) -> None:
        directory = self._powercap / zone
        directory.mkdir(exist_ok=True)
        (directory / "name").write_text(f"{name}\n")
        (directory / "max_energy_range_uj").write_text(f"{wrap}\n")
        replacement = directory / "new"
        replacement.write_text(f"{microjoules}\n")
        replacement.rename(directory / "energy_uj")  # at once, as the kernel does


@pytest.fixture
def zones(tmp_path: Path) -> Zones:
    return Zones(tmp_path)


def test_packages_and_their_memory_count_and_nothing_counts_twice(zones: Zones) -> None:
    names = {
        "intel-rapl:0": "package-0",
        "intel-rapl:0:0": "core",
        "intel-rapl:0:1": "uncore",
        "intel-rapl:0:2": "dram",
        "intel-rapl:1": "package-1",
        "intel-rapl:2": "psys",
        "intel-rapl-mmio:0": "package-0",
    }
    for zone, name in names.items():
        zones.set(zone, name, 1_000_000)
    rapl = Rapl(zones.root)
    assert rapl.devices == ["package-0", "dram-0", "package-1"]
    for zone, name in names.items():
        zones.set(zone, name, 3_500_000)
    assert rapl.joules() == {"package-0": 2.5, "dram-0": 2.5, "package-1": 2.5}


def test_a_counter_that_starts_again_at_zero(zones: Zones) -> None:
    zones.set("intel-rapl:0", "package-0", 9_000_000, wrap=10_000_000)
    rapl = Rapl(zones.root)
    totals = []
    for raw in (9_500_000, 500_000, 8_500_000, 1_500_000):  # uneven, and twice around
        zones.set("intel-rapl:0", "package-0", raw, wrap=10_000_000)
        totals.append(rapl.joules()["package-0"])
    assert totals == pytest.approx([0.5, 1.5, 9.5, 12.5])


def test_a_package_that_can_not_be_read_leaves_the_rest_uncounted(zones: Zones) -> None:
    zones.set("intel-rapl:0", "package-0", 1)
    zones.set("intel-rapl:1", "package-1", 1)
    counter = zones.root / "sys/class/powercap/intel-rapl:1/energy_uj"
    counter.unlink()
    counter.mkdir()  # even root can't read that
    assert Rapl(zones.root).devices == []
    with find_counters(gpus=False, root=zones.root) as counters:
        assert counters == []


class Driver(types.SimpleNamespace):
    """In place of pynvml: two GPUs whose counters the test sets."""

    def __init__(self) -> None:
        self.open = 0
        self.millijoules = [5_000, 7_000]
        super().__init__(
            nvmlInit=lambda: self._add(1),
            nvmlShutdown=lambda: self._add(-1),
            nvmlDeviceGetCount=lambda: 2,
            nvmlDeviceGetHandleByIndex=lambda index: index,
            nvmlDeviceGetTotalEnergyConsumption=lambda handle: self.millijoules[handle],
        )

    def _add(self, change: int) -> None:
        self.open += change


def test_gpus_count_in_joules(monkeypatch: pytest.MonkeyPatch, zones: Zones) -> None:
    driver = Driver()
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    with find_counters(gpus=True, root=zones.root) as (nvml,):
        assert isinstance(nvml, Nvml)
        driver.millijoules = [6_500, 7_000]
        assert nvml.joules() == {"gpu-0": 6.5, "gpu-1": 7.0}
        assert driver.open == 1
    assert driver.open == 0
    with find_counters(gpus=False, root=zones.root) as counters:
        assert counters == []  # idle GPUs don't count for training on the processor


def test_gpus_without_counters_are_passed_over(monkeypatch: pytest.MonkeyPatch, zones: Zones) -> None:
    driver = Driver()
    driver.millijoules = []  # an IndexError, where the driver would say NVMLError
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    with find_counters(gpus=True, root=zones.root) as counters:
        assert counters == []
    assert driver.open == 0


def test_the_power_of_the_machine_adds_up_to_what_its_counter_advanced(zones: Zones, tmp_path: Path) -> None:
    run = tmp_path / "run"
    wrap = 1_000_000
    zones.set("intel-rapl:0", "package-0", 900_000, wrap)
    before = time.perf_counter()
    with machine_power(run, interval_seconds=0.05, gpus=False, root=zones.root):
        assert "machine power" in {thread.name for thread in threading.enumerate()}
        for raw in (950_000, 200_000, 700_000, 100_000):  # 50, 250, 500, 400 mJ
            time.sleep(0.07)
            zones.set("intel-rapl:0", "package-0", raw, wrap)
    events = [event for event in read_events(machine_event_file(run)) if isinstance(event, Powered)]
    assert len(events) >= 4
    samples = [PowerSample.from_event(event) for event in events]
    assert joules_of(samples, [(before, time.perf_counter())]) == pytest.approx(1.2)
    for first, second in itertools.pairwise(samples):
        assert second.window[0] == pytest.approx(first.time)  # no gaps, nothing twice


@pytest.mark.parametrize("interval", [0.0, 0.05])
def test_nothing_is_written_without_counters_or_interval(zones: Zones, tmp_path: Path, interval: float) -> None:
    if not interval:
        zones.set("intel-rapl:0", "package-0", 1)
    with machine_power(tmp_path / "run", interval_seconds=interval, gpus=False, root=zones.root):
        pass
    assert not (tmp_path / "run").exists()
