"""Shares of the CPU, in a made-up tree of either version and for real."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from minga.lab.cpu_shares import CpuShares, groups_named
from minga.lab.laboratory import Lab
from minga.runs.network import Network


def tree(root: Path, version: int) -> Path:
    """A machine with control groups; files of a group appear with it only in the real kernel, so tests make them."""
    (root / "proc/self").mkdir(parents=True)
    if version == 2:
        top = root / "sys/fs/cgroup"
        top.mkdir(parents=True)
        (top / "cgroup.controllers").write_text("cpu memory")
        (root / "proc/self/cgroup").write_text("0::/\n")
        return top
    top = root / "sys/fs/cgroup/cpu"
    top.mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("1:cpu:/\n")
    return top


@pytest.mark.parametrize(
    ("cores", "quota", "period"), [(0.5, 10_000, 20_000), (2, 40_000, 20_000), (0.02, 1000, 50_000)]
)
def test_version_1(tmp_path: Path, cores: float, quota: int, period: int) -> None:
    top = tree(tmp_path, 1)
    procs = CpuShares("minga-lab-test", tmp_path).grant("h1", cores)
    assert procs == top / "minga-lab-test/h1/cgroup.procs"
    assert (procs.parent / "cpu.cfs_quota_us").read_text() == str(quota)
    assert (procs.parent / "cpu.cfs_period_us").read_text() == str(period)


def test_version_2(tmp_path: Path) -> None:
    top = tree(tmp_path, 2)
    procs = CpuShares("minga-lab-test", tmp_path).grant("h1", 0.25)
    assert (procs.parent / "cpu.max").read_text() == "5000 20000"
    assert (top / "minga-lab-test/cgroup.subtree_control").read_text() == "+cpu"


def test_no_control_groups_are_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no control groups"):
        CpuShares("minga-lab-test", tmp_path).grant("h1", 1)


def test_groups_are_found_by_name(tmp_path: Path) -> None:
    top = tree(tmp_path, 1)
    (top / "minga-lab-one").mkdir()
    (top / "something-else").mkdir()
    assert [group.name for group in groups_named("minga-lab-", tmp_path)] == ["minga-lab-one"]


def test_a_share_is_never_exceeded(no_lab_left: None) -> None:
    code = (
        "import time\n"
        "began, used = time.perf_counter(), time.process_time()\n"
        "while time.perf_counter() - began < 1.0: pass\n"
        "print((time.process_time() - used) / (time.perf_counter() - began))"
    )
    with Lab(Network(), 2, cpu=(1.0, 0.4)) as lab:
        used = subprocess.run(
            [sys.executable, "-c", code], preexec_fn=lab.entering("h2"), capture_output=True, text=True, check=True
        )
    assert 0.1 < float(used.stdout) < 0.45  # less where other tests need the cores, never more
    assert not groups_named(lab.name)
