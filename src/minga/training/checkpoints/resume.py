"""Finding what a run can go on from, and making way for what comes.

checkpoint = find_last_good(run)                   # warns of damaged ones; CheckpointError if none is good
set_later_aside(run, checkpoint); rewind_events(run, checkpoint)
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

from minga.errors import CheckpointError, ProtocolError
from minga.measure.event_reader import EventReader, event_files, machine_event_file, rank_of
from minga.measure.events import Evaluated, Event, Failed, Finished, Stepped, Stopped
from minga.training.checkpoints.files import (
    Checkpoint,
    give_name,
    list_checkpoints,
    remove_leftovers,
    write_partial,
)

__all__ = [
    "find_last_good",
    "next_session",
    "rewind_events",
    "set_later_aside",
]

_LOG = logging.getLogger("minga.training.checkpoints")


def find_last_good(run: Path) -> Checkpoint:
    """The last whole checkpoint of a run; what is wrong with later ones is logged."""
    listed = list_checkpoints(run)
    for checkpoint in reversed(listed):
        problem = checkpoint.problem()
        if problem is None:
            return checkpoint
        _LOG.warning("checkpoint %s can't be used: %s; looking for an earlier one", checkpoint.directory, problem)
    if not listed:
        raise CheckpointError(
            f"{run} has no checkpoints to go on from; start again with 'minga train' "
            "(checkpoints are made every minute, --checkpoint-every 10s makes them more often)"
        )
    raise CheckpointError(
        f"none of the {len(listed)} checkpoints of {run} is whole ('minga checkpoints {run}' shows what is wrong "
        "with each); start again with 'minga train'"
    )


def set_later_aside(run: Path, checkpoint: Checkpoint) -> None:
    """Rename what is later than the checkpoint that a run goes on from: it is damaged, and new ones take its place."""
    remove_leftovers(run)
    for other in list_checkpoints(run):
        if other.order > checkpoint.order:
            number = len(list(other.directory.parent.glob(f"damaged-*-{other.name}")))
            other.directory.rename(other.directory.with_name(f"damaged-{number}-{other.name}"))


def next_session(run: Path) -> int:
    """A number that no moment's name of this run has yet."""
    return 1 + max((checkpoint.order[1] for checkpoint in list_checkpoints(run) if checkpoint.order[0]), default=0)


def rewind_events(run: Path, checkpoint: Checkpoint) -> None:
    """Take out of the event files what came after the checkpoint, and how ranks ended that come again."""
    lines = {path: list(EventReader(path).read_lines()) for path in event_files(run)}
    ends: dict[Path, float | None] = {}
    for path, events in lines.items():
        with contextlib.suppress(OSError, ProtocolError):
            ends[path] = _end(events, checkpoint.manifest(rank_of(path)).step)
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
        write_partial(path, kept)
        give_name(path)


def _end(events: Sequence[tuple[bytes, Event]], last_step: int) -> float | None:
    """The time of the last event that belongs to this step: its evaluation comes after it."""
    times = [event.time for _, event in events if isinstance(event, Stepped | Evaluated) and event.step <= last_step]
    return max(times, default=None)
