"""What a test has left behind: threads, processes, environment variables.

Linux tells each process who its children are, which costs a hundredth of looking through all processes of the machine.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import psutil

from helpers.warm_start import own_processes

__all__ = ["Belongings", "children"]

_KERNEL_TELLS = Path(f"/proc/self/task/{os.getpid()}/children").exists()


class Belongings:
    """What this process has at a moment."""

    # pytest and torch set these by themselves.
    _NOT_OF_TESTS = frozenset({"PYTEST_CURRENT_TEST", "TORCHINDUCTOR_CACHE_DIR"})

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._threads = set(threading.enumerate())
        self._children = children(os.getpid())

    def threads(self) -> list[threading.Thread]:
        """Those that are new."""
        return [thread for thread in threading.enumerate() if thread not in self._threads]

    def processes(self) -> list[psutil.Process]:
        """Those that are new, also when they have ended and nobody has asked how."""
        new = []
        for pid in children(os.getpid()) - self._children - own_processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                new.append(psutil.Process(pid))
        return [process for process in new if not _belongs_to_python(process)]

    def variables(self) -> set[str]:
        """Those that have another value."""
        keys = self._environment.keys() | os.environ.keys()
        return {key for key in keys if self._environment.get(key) != os.environ.get(key)} - self._NOT_OF_TESTS


def children(pid: int) -> set[int]:
    """The processes that this one has started, and those that they have started."""
    if not _KERNEL_TELLS:
        return {process.pid for process in psutil.Process(pid).children(recursive=True)}
    found: set[int] = set()
    for child in _own_children(pid):
        found |= {child, *children(child)}
    return found


def _own_children(pid: int) -> set[int]:
    """Read until it is the same twice: while one of them ends, the kernel may leave another one out."""
    before, now = None, _read(pid)
    while before != now:
        before, now = now, _read(pid)
    return now


def _read(pid: int) -> set[int]:
    found: set[int] = set()
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return found  # it has ended
    for task in tasks:
        try:
            found.update(map(int, (task / "children").read_text(encoding="ascii").split()))
        except OSError:
            continue  # this thread has ended, and its children are another one's
    return found


def _belongs_to_python(process: psutil.Process) -> bool:
    """Whether it is the one that `multiprocessing` starts once and keeps until the end."""
    try:
        return any("multiprocessing.resource_tracker" in word for word in process.cmdline())
    except psutil.Error:
        return False
