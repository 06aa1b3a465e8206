"""Everything that the doctor looks at, together, and what follows from it."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

import pytest

from minga.measure.machine import examination as looks
from minga.measure.machine.energy import energy
from minga.measure.machine.examination import MachineExamination, examine
from minga.measure.machine.findings import MachineFinding, State
from minga.measure.machine.lab import control_groups, namespaces, traffic_shaping
from minga.measure.machine.system import cores, versions


def test_without_torch_nothing_needed_is_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    examination = examine(minga_version="1", threads_per_rank=None)
    states = {finding.name: finding.state for finding in examination.findings}
    assert (states["torch"], states["gloo"], states["threads per rank"]) == ("missing", "unknown", "unknown")
    assert not examination.local_run_works


def test_a_machine_that_is_not_linux_and_has_no_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "mac_ver", lambda: ("15.1", ("", "", ""), "arm64"))

    def nothing() -> Any:
        raise OSError("no os-release")

    monkeypatch.setattr(platform, "freedesktop_os_release", nothing)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert "macOS 15.1" in versions("1")[-1].found
    assert cores(tmp_path).values["usable"] == os.cpu_count()
    lab = [namespaces(tmp_path), *traffic_shaping(tmp_path), control_groups(tmp_path)]
    assert {finding.state for finding in lab} == {"missing"}
    assert energy(tmp_path)[0].state == "missing"


@pytest.mark.parametrize(("name", "works"), [("memory", True), ("network", True), ("devices", False)])
def test_a_look_that_fails_is_a_finding(monkeypatch: pytest.MonkeyPatch, name: str, works: bool) -> None:
    def fail(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied", "/proc/somewhere")

    monkeypatch.setattr(looks, name, fail)
    examination = examine(minga_version="1", threads_per_rank=1)
    (failed,) = [finding for finding in examination.findings if "/proc/somewhere" in finding.found]
    assert failed.state == "unknown"
    assert examination.local_run_works is works


def test_only_what_is_needed_decides_about_a_local_run() -> None:
    def finding(state: State, needed: bool) -> MachineFinding:
        remedy = "" if state == "ok" else "do something"
        return MachineFinding(topic="t", name="n", state=state, found="f", remedy=remedy, needed=needed)

    assert MachineExamination(findings=(finding("ok", True), finding("missing", False))).local_run_works
    assert not MachineExamination(findings=(finding("ok", True), finding("unknown", True))).local_run_works


def test_whatever_is_not_ok_has_a_remedy() -> None:
    with pytest.raises(AssertionError, match="remedy"):
        MachineFinding(topic="t", name="n", state="missing", found="f")
    with pytest.raises(AssertionError, match="remedy"):
        MachineFinding(topic="t", name="n", state="ok", found="f", remedy="do something")
