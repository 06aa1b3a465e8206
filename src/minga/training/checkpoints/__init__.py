"""Checkpoints: a run that was interrupted, for whatever reason, goes on from where it was, to the last bit."""

from minga.training.checkpoints.files import Checkpoint, Manifest, list_checkpoints
from minga.training.checkpoints.manager import CheckpointManager, NoCheckpoints
from minga.training.checkpoints.resume import find_last_good
from minga.training.checkpoints.snapshot import Snapshot, put_back, take
from minga.training.checkpoints.writer import CheckpointWriter

__all__ = [
    "Checkpoint",
    "CheckpointManager",
    "CheckpointWriter",
    "Manifest",
    "NoCheckpoints",
    "Snapshot",
    "find_last_good",
    "list_checkpoints",
    "put_back",
    "take",
]
