"""The events of a run that goes on: those after the checkpoint it goes on from did not happen."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from minga.errors import ProtocolError
from minga.measure.events import event_files, machine_event_file
from minga.training.checkpoints.files import Checkpoint, write_file

__all__ = ["rewind_events"]

_LAST_WORDS = ("failed", "stopped", "finished")


def rewind_events(run: Path, checkpoint: Checkpoint) -> None:
    """Take out of the event files what came after the checkpoint, and the final errors of ranks that come again."""
    lines = {path: _read(path) for path in event_files(run)}
    steps: dict[Path, int] = {}
    for path in lines:
        with contextlib.suppress(OSError, ProtocolError, UnicodeDecodeError):
            steps[path] = checkpoint.manifest(int(path.stem.removeprefix("rank-"))).step
    ends = [_end(events, steps[path]) for path, events in lines.items() if path in steps]
    end = max((time for time in ends if time is not None), default=None)
    if machine_event_file(run).is_file():
        lines[machine_event_file(run)] = _read(machine_event_file(run))
    for path, events in lines.items():
        own = _end(events, steps[path]) if path in steps else None
        latest = own if own is not None else end
        kept = [
            text
            for text, event in events
            if event.get("event") not in _LAST_WORDS and (latest is None or _time(event) <= latest)
        ]
        write_file(path, ["".join(kept).encode()])


def _read(path: Path) -> list[tuple[str, dict[str, Any]]]:
    events = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict) and line.endswith("\n"):
                events.append((line, event))
    return events


def _time(event: dict[str, Any]) -> float:
    return float(event.get("time", 0.0))


def _end(events: list[tuple[str, dict[str, Any]]], last_step: int) -> float | None:
    """The time of the last event that belongs to this step: its evaluation comes after it."""
    times = [
        _time(event)
        for _, event in events
        if event.get("event") in ("step", "evaluated") and event["step"] <= last_step
    ]
    return max(times, default=None)
