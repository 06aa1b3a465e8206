"""What the doctor sees of energy counters: a directory in place of /sys, and a stand-in for NVML."""

from __future__ import annotations

import os
import sys
import tempfile
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from minga.measure.machine.energy import energy


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Root may read everything, so tests of what can't be read become somebody else for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def powercap() -> Iterator[Path]:
    """A machine's root with two counters, in a place that ordinary users can reach, as pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        zones = root / "sys/class/powercap"
        write(
            zones,
            {
                "intel-rapl/enabled": "1\n",
                "intel-rapl:0/energy_uj": "262143328850\n",
                "intel-rapl:0/name": "package-0\n",
                "intel-rapl:0:0/energy_uj": "1234\n",
                "intel-rapl:0:0/name": "core\n",
            },
        )
        yield root


def test_counters_that_can_be_read(powercap: Path) -> None:
    finding = energy(powercap)[0]
    assert finding.state == "ok"
    assert finding.values["readable"] == ["package-0", "core"]


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="needs users")
def test_counters_that_only_root_can_read(powercap: Path) -> None:
    for counter in powercap.glob("sys/class/powercap/*/energy_uj"):
        counter.chmod(0o400 if os.geteuid() == 0 else 0)
    with ordinary_user():
        finding = energy(powercap)[0]
    assert finding.state == "limited"
    assert "estimated from CPU time" in finding.found
    assert "chmod a+r" in finding.remedy


def test_some_counters_that_can_be_read_need_no_estimate(powercap: Path) -> None:
    (powercap / "sys/class/powercap/intel-rapl:0:0/energy_uj").unlink()
    (powercap / "sys/class/powercap/intel-rapl:0:0/energy_uj").mkdir()  # even root can't read that
    finding = energy(powercap)[0]
    assert finding.state == "limited"
    assert finding.values["readable"] == ["package-0"]
    assert "estimated" not in finding.found


def test_no_counters(tmp_path: Path) -> None:
    write(tmp_path, {"sys/class/powercap/intel-rapl/enabled": "1\n"})
    finding = energy(tmp_path)[0]
    assert finding.state == "missing"
    assert "estimated from CPU time" in finding.found


class NVMLError(Exception):
    pass


def nvml(count: int, *, broken: bool = False) -> Any:
    def consumption(handle: int) -> int:
        if broken:
            raise NVMLError("Not Supported")
        return 5_000 + handle

    return types.SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: count,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetTotalEnergyConsumption=consumption,
    )


@pytest.mark.parametrize(
    ("module", "state", "says"),
    [
        (None, "missing", "not installed"),
        (nvml(2), "ok", "2 GPUs"),
        (nvml(0), "missing", "no GPU"),
        (nvml(1, broken=True), "missing", "Not Supported"),
    ],
)
def test_counters_of_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, state: str, says: str) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    finding = energy(tmp_path)[1]
    assert finding.state == state
    assert says in finding.found
