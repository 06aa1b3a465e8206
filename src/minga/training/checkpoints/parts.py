"""What is in a checkpoint's parts: one rank's, or what ranks of another number than before share.

state = read_part(checkpoint, rank)                # on as many ranks as before
state = load_shared(checkpoint)                    # on another number of them
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch

from minga.errors import CheckpointError, ProtocolError
from minga.model.blob import parse
from minga.model.sliced_optimizer import Piece, mean_of_pieces, pieces_from, pieces_to
from minga.training.checkpoints.files import Checkpoint
from minga.training.checkpoints.resume import find_last_good
from minga.training.checkpoints.snapshot import Snapshot

__all__ = ["last_optimizer_state", "load_shared", "read_part"]


def read_part(checkpoint: Checkpoint, rank: int) -> Snapshot:
    """One rank's part, checked against its manifest; `CheckpointError` with the file's name where that fails."""
    path = checkpoint.directory / f"rank-{rank}.safetensors"
    try:
        manifest, data = checkpoint.manifest(rank), path.read_bytes()
        if hashlib.sha256(data).hexdigest() != manifest.sha256:
            raise ProtocolError(f"{path} was changed: its SHA-256 is another")
        tensors, metadata = parse(data)
        return Snapshot.from_parts(tensors, metadata.get("minga", ""))
    except OSError as error:
        problem = f"can't read {error.filename}: {error.strerror}"
    except ProtocolError as error:
        problem = str(error)
    raise CheckpointError(f"can't go on from {checkpoint.directory}: {problem}")


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
