"""What the doctor sees of cores, memory, devices, data and disk on machines that are not this one."""

from __future__ import annotations

import os
import types
import warnings
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from minga.measure.machine.system import cores, data_directory, devices, disk, memory


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


# processor


@pytest.mark.parametrize(("affinity", "state"), [({0, 3}, "ok"), ({3}, "limited")])
def test_cores_are_those_that_this_process_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, affinity: set[int], state: str
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: affinity, raising=False)
    finding = cores(tmp_path)
    assert (finding.values["usable"], finding.state) == (len(affinity), state)


# devices


def test_gpus_are_listed_with_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    gpu = types.SimpleNamespace(name="RTX 4090", total_memory=25_400_000_000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: gpu)
    found = {finding.name: finding.found for finding in devices()}
    assert found["GPU 0"] == found["GPU 1"] == "RTX 4090, 25.4 GB"
    assert "GPU" not in found


def test_why_a_gpu_can_not_be_used_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable() -> bool:
        warnings.warn("CUDA initialization: the driver is too old\n(and so on)", stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", unavailable)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    finding = devices()[-1]
    assert finding.state == "missing"
    assert finding.found.endswith("the driver is too old")


# data and disk


@pytest.mark.parametrize("setting", [None, ""])
def test_no_data_directory(setting: str | None) -> None:
    (finding,) = data_directory(setting)
    assert finding.state == "missing"
    assert "MINGA_DATA is not set" in finding.found


def test_a_data_directory_that_does_not_exist(tmp_path: Path) -> None:
    (finding,) = data_directory(str(tmp_path / "nowhere"))
    assert finding.state == "missing"
    assert "nowhere" in finding.found


def test_data_sets_are_directories_with_something_in_them(tmp_path: Path) -> None:
    assert data_directory(str(tmp_path))[1].state == "missing"
    write(tmp_path, {"mnist/train-images-idx3-ubyte": "", "text": "a file", "unrelated/x": ""})
    (tmp_path / "flickr8k").mkdir()
    directory, sets = data_directory(str(tmp_path))
    assert (directory.state, sets.state) == ("ok", "limited")
    assert sets.values == {"found": ["mnist"], "lacking": ["fashion-mnist", "flickr8k", "text"]}
    (tmp_path / "text").unlink()
    write(tmp_path, {"fashion-mnist/x": "", "flickr8k/x": "", "text/x": ""})
    assert data_directory(str(tmp_path))[1].state == "ok"


@pytest.mark.parametrize(("free", "state"), [(5_000_000_000, "ok"), (50_000_000, "limited")])
def test_little_free_space_is_said(monkeypatch: pytest.MonkeyPatch, free: int, state: str) -> None:
    usage = types.SimpleNamespace(total=10**10, free=free, available=free)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: usage)
    assert disk().state == state
    assert memory().state == state


def test_a_directory_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(path: str) -> Any:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("shutil.disk_usage", gone)
    assert disk().state == "unknown"
