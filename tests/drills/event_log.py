"""The events of a run that is going on, read as they are written.

log = EventLog(run / "events"); log.read()
log.steps["rank-0"]              # [(time, step), ...]
log.of(RankRecovered)            # each with the name of its file as `who`
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from minga.measure.event_reader import EventReader
from minga.measure.events import Event, Powered, Sampled, Stepped

__all__ = ["EventLog", "Logged"]

AnyEvent = TypeVar("AnyEvent", bound=Event, covariant=True)


@dataclass(frozen=True)
class Logged(Generic[AnyEvent]):
    """An event, and the name of the file that it stands in."""

    who: str
    event: AnyEvent


class EventLog:
    """What all ranks of one or several directories of a run have written so far."""

    def __init__(self, *folders: Path) -> None:
        self._folders = dict.fromkeys(folders, "")
        self._readers: dict[Path, EventReader] = {}
        self.steps: dict[str, list[tuple[float, int]]] = {}
        """By the name of the rank's file: when, and which."""
        self.events: list[Logged[Event]] = []
        """All others, without samples."""

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
        reader = self._readers.setdefault(path, EventReader(path))
        events = list(reader.read())
        if reader.replaced:  # a run that goes on has put another file in its place, without what it forgets
            self.steps.pop(who, None)
            self.events = [logged for logged in self.events if logged.who != who]
        for event in events:
            if isinstance(event, Stepped):
                self.steps.setdefault(who, []).append((event.time, event.step))
            elif not isinstance(event, Sampled | Powered):
                self.events.append(Logged(who, event))

    def of(self, kind: type[AnyEvent], who: str | None = None) -> list[Logged[AnyEvent]]:
        return [
            Logged(logged.who, logged.event)
            for logged in self.events
            if isinstance(logged.event, kind) and who in (None, logged.who)
        ]

    @property
    def last_step(self) -> int:
        """The furthest that anybody has come."""
        return max((steps[-1][1] for steps in self.steps.values()), default=0)
