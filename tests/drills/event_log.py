"""The events of a run that is going on, read as they are written.

log = EventLog(run / "events"); log.read()
log.steps["rank-0"]              # [(time, step), ...]
log.of("recovered")              # with the file's name as "who"
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["EventLog"]

_UNUSED = ("sample", "power")


class EventLog:
    """What all ranks of one or several directories of a run have told so far."""

    def __init__(self, *folders: Path) -> None:
        self._folders = dict.fromkeys(folders, "")
        self._read_so_far: dict[Path, tuple[int, int]] = {}
        """The file itself (its inode), and how much of it."""
        self.steps: dict[str, list[tuple[float, int]]] = {}
        """By the name of the rank's file: when, and which."""
        self.events: list[dict[str, Any]] = []
        """All others, with the file's name as `who`."""

    def add(self, folder: Path, prefix: str = "") -> None:
        """Also look at another directory: of a node that has joined, whose name begins with `prefix`."""
        self._folders[folder] = prefix

    def read(self) -> None:
        paths = {
            path: prefix + path.stem
            for folder, prefix in self._folders.items()
            for path in sorted(folder.glob("rank-*.jsonl"))
        }
        joined = {path.name for path, who in paths.items() if who != path.stem}
        for path, who in paths.items():
            if who != path.stem or path.name not in joined:  # who has joined hands over a copy at its end
                self._read(path, who)

    def _read(self, path: Path, who: str) -> None:
        with path.open("rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            known, offset = self._read_so_far.get(path, (inode, 0))
            if known != inode:  # a run that goes on has put another file in its place, without what it forgets
                offset = 0
                self.steps.pop(who, None)
                self.events = [event for event in self.events if event["who"] != who]
            file.seek(offset)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read_so_far[path] = (inode, offset + len(whole))
        for line in whole.splitlines():
            try:
                event = json.loads(line)
            except ValueError:  # cut short by a kill
                continue
            if event["event"] == "step":
                self.steps.setdefault(who, []).append((event["time"], event["step"]))
            elif event["event"] not in _UNUSED:
                self.events.append({**event, "who": who})

    def of(self, kind: str, who: str | None = None) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind and who in (None, event["who"])]

    @property
    def last_step(self) -> int:
        """The furthest that anybody has come."""
        return max((steps[-1][1] for steps in self.steps.values()), default=0)
