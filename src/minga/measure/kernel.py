"""What the kernel's small files say of this machine, such as how much of the CPU its control groups grant.

    read(ROOT / "proc/self/status")
    cpu_quota()  # 1.5: the time of one core and a half

Both versions of control groups count: what the doctor says of cores and of labs builds on this. Tests give another
root, with files of their own.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

__all__ = ["ROOT", "cpu_groups", "cpu_quota", "read", "throttled_seconds"]

ROOT = Path("/")
_THROTTLED = {"throttled_time": 1e-9, "throttled_usec": 1e-6}
"""Names and units in version 1 and version 2."""


def read(path: Path) -> str | None:
    """A small file's text without the space around it; None where it is not there or not for us."""
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if path.suffix == ".gz" else content).decode(errors="replace").strip()
    except (OSError, EOFError, zlib.error):
        return None


def cpu_groups(root: Path) -> tuple[int, list[Path]]:
    """The version of control groups that has the CPU (0: none), and this process's group with all above it."""
    top = root / "sys/fs/cgroup"
    parts = (line.split(":", 2) for line in (read(root / "proc/self/cgroup") or "").splitlines())
    paths = {part[1]: part[2] for part in parts if len(part) == 3}  # by controllers; version 2 has the empty name
    if (top / "cgroup.controllers").exists():
        version, path = 2, paths.get("", "/")
    else:
        mounted = next((names for names in paths if "cpu" in names.split(",") and (top / names).is_dir()), None)
        if mounted is None:
            return 0, []
        version, path, top = 1, paths[mounted], top / mounted
    # In a container the path can be the host's, of which only the upper part exists here, or lead out of it.
    own = top if ".." in path else top / path.strip("/")
    return version, [group for group in (own, *own.parents) if group.is_relative_to(top) and group.is_dir()]


def cpu_quota(root: Path = ROOT) -> float | None:
    """The cores' worth of time that control groups grant this process; None: no limit."""
    version, groups = cpu_groups(root)
    quotas = []
    for group in groups:
        if version == 2:
            values = (read(group / "cpu.max") or "").split()
        else:
            values = [read(group / f"cpu.cfs_{name}_us") or "" for name in ("quota", "period")]
        if len(values) == 2 and all(value.isdigit() for value in values):  # no limit: "max" or -1
            quotas.append(int(values[0]) / int(values[1]))
    return min(quotas, default=None)


def throttled_seconds(group: Path) -> float | None:
    """How long a group's processes have been held back because its time was used up; None where that is unknown."""
    for line in (read(group / "cpu.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name in _THROTTLED:
            return int(value) * _THROTTLED[name]
    return None
