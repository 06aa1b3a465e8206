"""Shares of the CPU for the hosts of a lab, as control groups of either version.

    shares = CpuShares("minga-1a2b3c")
    shares.grant("h1", cores=0.5)          # the file that a process writes its id into to belong to h1
    shares.remove()

Groups are named after the lab, so that those of a lab that was killed are found by name.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from minga.measure.kernel import cpu_groups

__all__ = ["CpuShares", "groups_named", "remove_groups"]

# Short enough that a host with half a core is slow all the time, not fast and then asleep; the kernel hands out
# time in slices of 5 ms, so much shorter would not be kept.
_PERIOD_MICROSECONDS = 20_000
_LEAST_MICROSECONDS = 1_000
_PATIENCE_SECONDS = 5.0


class CpuShares:
    """The control groups of one lab."""

    def __init__(self, lab: str, root: Path = Path("/")) -> None:
        self._version, candidates = cpu_groups(root)
        # With version 2 a group that has processes of its own can't hand on the controller, but one above it may.
        self._parents = candidates if self._version == 2 else candidates[:1]
        self._lab = lab
        self._group: Path | None = None

    def grant(self, host: str, cores: float) -> Path:
        """Make a group with that much time. Raises OSError where control groups can't be used."""
        group = self._lab_group() / host
        group.mkdir()
        period = max(_PERIOD_MICROSECONDS, round(_LEAST_MICROSECONDS / cores))
        quota = round(period * cores)
        if self._version == 2:
            (group / "cpu.max").write_text(f"{quota} {period}", encoding="ascii")
        else:
            (group / "cpu.cfs_period_us").write_text(str(period), encoding="ascii")
            (group / "cpu.cfs_quota_us").write_text(str(quota), encoding="ascii")
        return group / "cgroup.procs"

    def _lab_group(self) -> Path:
        if self._group is not None:
            return self._group
        problem: OSError = FileNotFoundError("no control groups with a cpu controller")
        for parent in self._parents:
            group = parent / self._lab
            try:
                group.mkdir()
                if self._version == 2:
                    for level in (parent, group):
                        (level / "cgroup.subtree_control").write_text("+cpu", encoding="ascii")
            except OSError as error:
                problem = error
                with contextlib.suppress(OSError):
                    group.rmdir()
                continue
            self._group = group
            return group
        raise problem

    def remove(self) -> None:
        """End what still runs in the groups, and remove them."""
        if self._group is not None:
            remove_groups(self._group)
            self._group = None


def groups_named(prefix: str, root: Path = Path("/")) -> list[Path]:
    """Groups of labs, wherever a lab of this user would have made them."""
    _, candidates = cpu_groups(root)
    return [group for parent in candidates for group in parent.glob(f"{prefix}*") if group.is_dir()]


def remove_groups(group: Path) -> None:
    """Remove a group and those in it; processes that are still there are ended first."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while group.exists() and time.monotonic() < deadline:
        inner = [path for path in group.glob("*/") if path.is_dir()]
        for each in [*inner, group]:
            for pid in _members(each):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(OSError):  # busy until its processes are gone for good
                each.rmdir()
        if group.exists():
            time.sleep(0.02)


def _members(group: Path) -> list[int]:
    try:
        pids = [int(line) for line in (group / "cgroup.procs").read_text(encoding="ascii").split()]
    except OSError:
        return []
    return [pid for pid in pids if pid > 0]  # 0 stands for one that can't be seen from here, and to kill means "us"
