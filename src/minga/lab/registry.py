"""Which labs there are on this machine: a small file for each, in a directory that only this user can read.

    register(Record(name="minga-1a2b3c", daemon=1234, ...))
    for record in records(): print(record.name, record.alive)

Hosts of a lab live as long as its processes; what can outlive them (control groups, these files) has the lab's name.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from minga.errors import LabError
from minga.lab.cpu_shares import groups_named, remove_groups

__all__ = [
    "FOR_PEOPLE",
    "PREFIX",
    "VARIABLE",
    "Record",
    "clean",
    "directory",
    "end_all",
    "forget",
    "leftovers",
    "new_name",
    "records",
    "register",
    "socket_of",
    "started_at",
]

PREFIX = "minga-lab-"
FOR_PEOPLE = "minga lab up"
"""The purpose of a lab that commands may take without asking which one is meant."""
VARIABLE = "MINGA_LABS"
"""The environment variable with which a lab's owner shows the daemon where the files are."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What others need to know of a running lab."""

    name: str
    daemon: int
    """Process id of the daemon."""
    daemon_started: int
    """When it began, since process ids are used again."""
    owner: int
    """Process id of whoever made the lab; it ends with it."""
    purpose: str = ""
    """What it was made for, in words; `FOR_PEOPLE`: to look around in."""
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name: address, namespaces, cgroup, cores."""

    @property
    def alive(self) -> bool:
        return started_at(self.daemon) == self.daemon_started


def started_at(pid: int) -> int | None:
    """When a process began, in the kernel's ticks since boot (the time of day may be set); None if there is none."""
    try:
        # Behind the name, which may contain anything, come the state and, as the 20th field from there, the start.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def new_name() -> str:
    return PREFIX + secrets.token_hex(3)


def directory() -> Path:
    """Where the files are; made when it is needed."""
    given, base = os.environ.get(VARIABLE), Path(os.environ.get("XDG_RUNTIME_DIR") or "/nowhere")
    if given:
        path = Path(given)
    elif base.is_dir() and base.stat().st_uid == os.getuid():
        path = base / "minga"
    else:
        path = Path(tempfile.gettempdir()) / f"minga-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        state = path.lstat()
    except OSError as error:
        raise LabError(f"can't make {path} for notes about labs: {error.strerror}; set XDG_RUNTIME_DIR") from None
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise LabError(f"{path} should be a directory that only you can use; remove it, or set XDG_RUNTIME_DIR")
    return path


def socket_of(name: str) -> Path:
    return directory() / f"{name}.socket"


def register(record: Record) -> None:
    path = directory() / f"{record.name}.json"
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(asdict(record)), encoding="utf-8")
    draft.replace(path)


def forget(name: str) -> None:
    for suffix in (".json", ".draft", ".socket"):
        (directory() / f"{name}{suffix}").unlink(missing_ok=True)


def records() -> list[Record]:
    """All labs of this user that were registered and not forgotten, the newest last."""
    found = []
    for path in directory().glob(f"{PREFIX}*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError):  # just removed, or not ours
            found.append((path.stat().st_mtime, Record(**json.loads(path.read_text(encoding="utf-8")))))
    return [record for _, record in sorted(found, key=lambda pair: pair[0])]


def leftovers() -> list[str]:
    """Names of labs that are gone and have left something behind."""
    known = {record.name: record.alive for record in records()}
    names = {path.name.partition(".")[0] for path in directory().glob(f"{PREFIX}*")}
    names |= {group.name for group in groups_named(PREFIX)}
    return sorted(name for name in names if not known.get(name, False) and not _keeper_lives(name))


def _keeper_lives(name: str) -> bool:
    """Whether a daemon of that name runs: one that has not registered yet, or another user's."""
    return any(name in (process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))


def end_all() -> list[str]:
    """End the daemons of all labs that run; the names of those labs."""
    ended = []
    for record in records():
        if record.alive:
            with contextlib.suppress(psutil.Error):
                daemon = psutil.Process(record.daemon)
                daemon.terminate()
                daemon.wait(10)
            ended.append(record.name)
    return ended


def clean(name: str) -> None:
    """Remove what a lab has left behind."""
    groups = set(groups_named(name))
    for record in records():
        if record.name == name:  # a group that another session's processes made is only there
            groups |= {Path(host["cgroup"]).parents[1] for host in record.hosts.values() if host.get("cgroup")}
    for group in groups:
        remove_groups(group)
    forget(name)
