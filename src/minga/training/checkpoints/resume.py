"""Finding what a run can go on from, making way for what comes, and what ranks of another number than before share.

checkpoint = find_last_good(run)                   # warns of damaged ones; CheckpointError if none is good
set_later_aside(run, checkpoint); rewind_events(run, checkpoint)
state = read_part(checkpoint, rank)                # on as many ranks as before
state = load_shared(checkpoint)                    # on another number of them
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

import torch

from minga.errors import CheckpointError, ProtocolError
from minga.measure.event_reader import EventReader, event_files, machine_event_file, rank_of
from minga.measure.events import Evaluated, Event, Failed, Finished, Stepped, Stopped
from minga.model.sliced_optimizer import Piece, mean_of_pieces, pieces_from, pieces_to
from minga.training.checkpoints.files import (
    Checkpoint,
    give_name,
    list_checkpoints,
    read_part,
    remove_leftovers,
    write_partial,
)
from minga.training.checkpoints.snapshot import Snapshot

__all__ = [
    "find_last_good",
    "last_optimizer_state",
    "load_shared",
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


def load_shared(checkpoint: Checkpoint) -> Snapshot:
    """What ranks of any number go on from: the servers' parts joined, or rank 0's, or the mean where replicas differ.

    Position in the data and steps are rank 0's.
    """
    first = read_part(checkpoint, 0)
    parts = [first, *(read_part(checkpoint, rank) for rank in range(1, first.ranks))]
    servers = [part for part in parts if part.facts["part"] is not None]
    training = [part for part in parts if part.facts["part"] is None]
    tensors = {name: tensor for name, tensor in first.tensors.items() if not name.startswith(("optimizer:", "memory:"))}
    tensors.pop("contribution", None)
    pieces = _pieces(first)
    if servers:
        servers.sort(key=lambda part: int(part.facts["part"][0]))
        tensors["parameters"] = torch.cat([part.tensors["parameters"] for part in servers])
        pieces = [piece for part in servers for piece in _pieces(part)]
    elif first.facts["replicas_differ"] and len(training) > 1:
        tensors["parameters"] = _mean(
            [part.tensors.get("contribution", part.tensors["parameters"]) for part in training]
        )
        pieces = mean_of_pieces([_pieces(part) for part in training])
    listed, of_optimizer = pieces_to(pieces)
    return Snapshot({**tensors, **of_optimizer}, {**first.facts, "optimizer": listed, "memory": None})


def last_optimizer_state(run: Path) -> list[Piece]:
    """Of all parameters, as of the last checkpoint that is whole; for a server that has lost its shard, on disk too."""
    try:
        return _pieces(load_shared(find_last_good(run)))
    except CheckpointError:
        return []


def _pieces(part: Snapshot) -> list[Piece]:
    return pieces_from(part.facts["optimizer"], part.tensors)


def _mean(vectors: Sequence[torch.Tensor]) -> torch.Tensor:
    total = vectors[0].double()
    for vector in vectors[1:]:
        total = total + vector.double()
    return (total / len(vectors)).to(vectors[0].dtype)
