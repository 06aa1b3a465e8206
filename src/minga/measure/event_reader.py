"""Reads the events of a run back into the dataclasses that wrote them.

    reader = EventReader(event_files(run)[0])
    for event in reader.read():                 # once more later: what has come since
        if isinstance(event, Stepped): ...
    reader.malformed                            # how many lines were no events

Types are checked. Fields that a newer version has added are left out, and an event that it has added is an
`UnknownEvent`. A line without an end is still being written, or a crash cut it short: it is not read until it has one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import FiniteFloat, TypeAdapter
from pydantic_core import from_json

from minga.measure.events import Event, Stepped, UnknownEvent

__all__ = [
    "SIMULATED",
    "EventReader",
    "event_files",
    "events_of",
    "machine_event_file",
    "malformed_note",
    "rank_of",
    "read_events",
]

AnyEvent = TypeVar("AnyEvent", bound=Event)


SIMULATED = "simulated.json"
"""This file of a run's directory is there if the run was simulated, and says how."""


def event_files(run: Path) -> list[Path]:
    """The event files of a run, by rank."""
    return sorted((run / "events").glob("rank-*.jsonl"), key=rank_of)


def rank_of(event_file: Path) -> int:
    """Whose events these are."""
    return int(event_file.stem.removeprefix("rank-"))


def machine_event_file(run: Path) -> Path:
    """Where the power of the whole machine goes."""
    return run / "events" / "machine.jsonl"


def read_events(path: Path) -> Iterator[Event]:
    """The events that are in a file now; what is malformed is passed over."""
    return EventReader(path).read()


def events_of(run: Path, kind: type[AnyEvent]) -> list[AnyEvent]:
    """All events of one kind that the ranks of a run have written, rank by rank."""
    readers = [EventReader(path, without_steps=kind is not Stepped) for path in event_files(run)]
    return [event for reader in readers for event in reader.read() if isinstance(event, kind)]


def malformed_note(counts: Mapping[str, int]) -> str | None:
    """One sentence about lines that were passed over, by the names of their files; None if there were none."""
    found = {name: count for name, count in counts.items() if count}
    if not found:
        return None
    places = ", ".join(f"{count} in {name}" for name, count in found.items())
    total = sum(found.values())
    if len(found) == 1:
        places = f"in {next(iter(found))}"
    return f"{total} malformed event{'s' if total > 1 else ''} passed over ({places}): numbers may be incomplete."


class EventReader:
    """The events of one file, as far as it is written."""

    def __init__(self, path: Path, *, without_steps: bool = False) -> None:
        """`without_steps`: the events of steps, of which there are many, are not wanted."""
        self.path = path
        self.malformed = 0
        self.replaced = False
        """Whether another file was in its place at the last `read`, which has begun at its start then: a run that
        goes on leaves out what came after its checkpoint."""
        self._without_steps = without_steps
        self._offset = 0
        self._inode: int | None = None

    def read(self) -> Iterator[Event]:
        """What is new since the last time."""
        for _, event in self.read_lines():
            yield event

    def read_lines(self) -> Iterator[tuple[bytes, Event]]:
        """As `read`, with the line that each event stands in."""
        as_step, left_out = _STEP.validate_json, self._without_steps
        with self.path.open("rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            self.replaced = self._inode not in (None, inode)
            if self.replaced:
                self._offset = self.malformed = 0
            self._inode = inode
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                try:
                    if line.startswith(_STEP_PREFIX):
                        if left_out and line.endswith(b"}\n"):
                            continue
                        yield line, as_step(line)
                    else:
                        yield line, _event_of(line)
                except ValueError:
                    self.malformed += 1


_EVENTS = [cls for cls in Event.__subclasses__() if cls is not UnknownEvent]
_VALIDATORS = {cls.event: TypeAdapter(cls).validator for cls in _EVENTS}
_TIME: TypeAdapter[float] = TypeAdapter(FiniteFloat)
_STEP = _VALIDATORS["step"]
_STEP_PREFIX = b'{"event": "step", '


def _event_of(line: bytes) -> Event:
    table = from_json(line)
    kind = table.get("event") if isinstance(table, dict) else None
    if not isinstance(kind, str):
        raise ValueError("a line that is no event")
    if kind in _VALIDATORS:
        event: Event = _VALIDATORS[kind].validate_json(line)
        return event
    return UnknownEvent(time=_TIME.validate_python(table.get("time"), strict=True), name=kind)
