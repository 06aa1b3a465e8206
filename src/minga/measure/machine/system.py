"""Software, processor, memory, devices, data and disk.

    cores().values["usable"]

It works without torch, and says so.
"""

from __future__ import annotations

import os
import platform
import shutil
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from minga.measure.kernel import ROOT, cpu_quota
from minga.measure.machine.findings import MachineFinding, State, first_line, make_finding, size

__all__ = ["cores", "data_directory", "devices", "disk", "memory", "threads", "versions"]

_DATA_SETS = ("mnist", "fashion-mnist", "flickr8k", "text")
_LITTLE = 1_000_000_000
"""Free bytes of memory or disk below which it gets tight: a rank takes about 0.25 GB before its model."""
_WITHOUT_TORCH = ("unknown without torch", "install torch first")


def versions(minga_version: str) -> list[MachineFinding]:
    """Minga, Python, torch, operating system."""
    system, release, architecture = platform.system(), platform.release(), platform.machine()
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        name = f"macOS {platform.mac_ver()[0]}" if system == "Darwin" else system
    found = f"{name}, kernel {system} {release}, {architecture}"
    values: dict[str, Any] = {"system": system, "distribution": name, "release": release, "architecture": architecture}
    if system in ("Linux", "Darwin"):
        machine = make_finding("versions", "system", "ok", found, **values)
    else:
        remedy = "Minga is made for Linux and macOS; on Windows, use the Linux subsystem (WSL)"
        machine = make_finding("versions", "system", "unknown", found, remedy, **values)
    return [
        make_finding("versions", "Minga", "ok", minga_version, version=minga_version),
        make_finding("versions", "Python", "ok", platform.python_version(), version=platform.python_version()),
        _torch_version(),
        machine,
    ]


def _torch_version() -> MachineFinding:
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: one of its libraries can't be loaded
        found = f"can't be imported: {first_line(error)}"
        remedy = "pip install torch (https://pytorch.org has the command for your GPU)"
        return make_finding("versions", "torch", "missing", found, remedy, needed=True)
    version = str(torch.__version__)
    return make_finding("versions", "torch", "ok", version, needed=True, version=version)


def cores(root: Path = ROOT) -> MachineFinding:
    """How many cores this process may use."""
    logical = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else logical
    physical = psutil.cpu_count(logical=False)
    quota = cpu_quota(root)
    finding = partial(
        make_finding, "processor", "cores", usable=usable, logical=logical, physical=physical, quota=quota
    )
    found = f"{usable} usable of {logical}, {physical or 'unknown number of'} physical"
    if quota is not None and quota < usable:
        remedy = "give the container or service more CPU time, or count on that many nodes at full speed"
        return finding("limited", f"{found}; the control group grants the time of {quota:g}", remedy)
    if usable == 1:
        return finding("limited", found, "several nodes on this machine take turns: use more machines for speed")
    return finding("ok", found)


def memory() -> MachineFinding:
    """Total and free memory."""
    now = psutil.virtual_memory()
    remedy = "end other programs or use fewer nodes; each takes about 0.25 GB before its model"
    return _space("processor", "memory", now.available, now.total, remedy)


def threads(default: int | None) -> MachineFinding:
    """Threads of each rank by default; None: nobody knows."""
    if default is None:
        return make_finding("processor", "threads per rank", "unknown", *_WITHOUT_TORCH)
    return make_finding("processor", "threads per rank", "ok", f"{default} by default", default=default)


def devices() -> list[MachineFinding]:
    """GPUs, and the backends that carry messages."""
    try:
        import torch
        import torch.distributed as distributed
    except (ImportError, OSError):
        backends = (("gloo", True), ("NCCL", False), ("GPU", False))
        return [make_finding("devices", name, "unknown", *_WITHOUT_TORCH, needed=needed) for name, needed in backends]
    without = "this torch is built without it"
    if distributed.is_available() and distributed.is_gloo_available():
        gloo = make_finding("devices", "gloo", "ok", "carries messages between CPUs", needed=True)
    else:
        remedy = "install an official build: pip install --force-reinstall torch"
        gloo = make_finding("devices", "gloo", "missing", without, remedy, needed=True)
    if distributed.is_available() and distributed.is_nccl_available():
        nccl = make_finding("devices", "NCCL", "ok", "carries messages between GPUs")
    else:
        nccl = make_finding("devices", "NCCL", "missing", without, "to use GPUs, install a CUDA build of torch")
    with warnings.catch_warnings(record=True) as heard:  # torch says why a GPU can't be used only in a warning
        warnings.simplefilter("always")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    gpus = [torch.cuda.get_device_properties(index) for index in range(count)]
    if gpus:
        return [gloo, nccl, *(_gpu(index, gpu.name, gpu.total_memory) for index, gpu in enumerate(gpus))]
    found, remedy = "torch finds none that it can use", "to use GPUs, see what nvidia-smi says"
    if torch.version.cuda is None and torch.version.hip is None:
        found, remedy = "this torch is built without CUDA", "to use GPUs, install a CUDA build of torch"
    elif heard:
        found += f": {first_line(heard[0].message)}"
    return [gloo, nccl, make_finding("devices", "GPU", "missing", found, remedy)]


def _gpu(index: int, model: str, nbytes: int) -> MachineFinding:
    return make_finding("devices", f"GPU {index}", "ok", f"{model}, {size(nbytes)}", model=model, total_bytes=nbytes)


def data_directory(setting: str | None) -> list[MachineFinding]:
    """The directory that MINGA_DATA names, and what is in it."""
    finding = partial(make_finding, "data", "data directory")
    if not setting:
        remedy = "export MINGA_DATA=DIR, or give --data DIR; the workload digits needs no data"
        return [finding("missing", "MINGA_DATA is not set", remedy)]
    directory = Path(setting)
    if not directory.is_dir():
        remedy = f"mkdir -p {directory}, or set MINGA_DATA to another"
        return [finding("missing", f"{directory} (MINGA_DATA) is not a directory", remedy, directory=setting)]
    there = [name for name in _DATA_SETS if _has_entries(directory / name)]
    lacking = [name for name in _DATA_SETS if name not in there]
    found, remedy = ", ".join(there) or "none", ""
    state: State = "ok"
    if lacking:
        state = "limited" if there else "missing"
        found += f"; not there: {', '.join(lacking)}"
        remedy = f"if you need them, put their files into directories such as {directory / lacking[0]}"
    return [
        finding("ok", f"{directory} (MINGA_DATA)", directory=setting),
        make_finding("data", "data sets", state, found, remedy, found=there, lacking=lacking),
    ]


def disk() -> MachineFinding:
    """Free space where run directories go by default."""
    try:
        usage = shutil.disk_usage(".")
    except OSError as error:
        return make_finding("data", "disk", "unknown", first_line(error), "change to a directory that exists")
    return _space("data", "disk", usage.free, usage.total, "free some space, or give --runs DIR on another disk")


def _space(topic: str, name: str, free: int, total: int, remedy: str) -> MachineFinding:
    found = f"{size(free)} free of {size(total)}"
    if free < _LITTLE:
        return make_finding(topic, name, "limited", found, remedy, free_bytes=free, total_bytes=total)
    return make_finding(topic, name, "ok", found, free_bytes=free, total_bytes=total)


def _has_entries(directory: Path) -> bool:
    try:
        return any(directory.iterdir())
    except OSError:
        return False
