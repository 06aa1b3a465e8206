"""The kernel's own calls for entering and leaving namespaces, which Python has only from 3.12 on.

unshare(NETWORK)                              # this process now has a network of its own, with nothing in it
enter({"namespaces": ["/proc/1234/ns/net"]})  # and now the one of process 1234
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["NETWORK", "USER", "die_with_parent", "enter", "unshare"]

USER = 0x10000000
NETWORK = 0x40000000
_PR_SET_PDEATHSIG = 1


def unshare(kind: int) -> None:
    """Leave a namespace for a new one. Raises OSError where that is not allowed."""
    _call("unshare", kind)


def enter(place: Mapping[str, Any]) -> None:
    """Move this process to a host of a lab: its share of the CPU, its cores, its network."""
    if place.get("cgroup"):
        Path(place["cgroup"]).write_text(str(os.getpid()), encoding="ascii")
    if place.get("cores"):
        os.sched_setaffinity(0, place["cores"])
    for path in place["namespaces"]:  # a user namespace comes first: it gives the right to enter the others
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _call("setns", descriptor, 0)
        finally:
            os.close(descriptor)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, however that comes about."""
    _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL)


def _call(name: str, *arguments: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
