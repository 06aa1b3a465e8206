"""The events of a run that goes on: those after the checkpoint it goes on from did not happen."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from minga.errors import ProtocolError
from minga.measure.event_reader import EventReader, event_files, machine_event_file, rank_of
from minga.measure.events import Evaluated, Event, Failed, Finished, Stepped, Stopped
from minga.training.checkpoints.files import Checkpoint, write_file

__all__ = ["rewind_events"]


def rewind_events(run: Path, checkpoint: Checkpoint) -> None:
    """Take out of the event files what came after the checkpoint, and how ranks ended that come again."""
    lines = {path: list(EventReader(path).read_lines()) for path in event_files(run)}
    steps: dict[Path, int] = {}
    for path in lines:
        with contextlib.suppress(OSError, ProtocolError, UnicodeDecodeError):
            steps[path] = checkpoint.manifest(rank_of(path)).step
    ends = {path: _end(lines[path], step) for path, step in steps.items()}
    end = max((time for time in ends.values() if time is not None), default=None)
    machine = machine_event_file(run)
    if machine.is_file():
        lines[machine] = list(EventReader(machine).read_lines())
    for path, events in lines.items():
        own = ends.get(path)
        latest = own if own is not None else end
        kept = [
            line
            for line, event in events
            if not isinstance(event, Failed | Stopped | Finished) and (latest is None or event.time <= latest)
        ]
        write_file(path, [b"".join(kept)])


def _end(events: Sequence[tuple[bytes, Event]], last_step: int) -> float | None:
    """The time of the last event that belongs to this step: its evaluation comes after it."""
    times = [event.time for _, event in events if isinstance(event, Stepped | Evaluated) and event.step <= last_step]
    return max(times, default=None)
