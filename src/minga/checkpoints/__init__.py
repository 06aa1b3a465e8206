"""Checkpoints: a run that was interrupted, for whatever reason, goes on from where it was, to the last bit."""

from minga.checkpoints.files import Checkpoint, Manifest, list_checkpoints
from minga.checkpoints.keeper import DiskKeeper, Keeper
from minga.checkpoints.resume import find_last_good
from minga.checkpoints.state import TrainingState, put_back, take
from minga.checkpoints.writer import CheckpointWriter

__all__ = [
    "Checkpoint",
    "CheckpointWriter",
    "DiskKeeper",
    "Keeper",
    "Manifest",
    "TrainingState",
    "find_last_good",
    "list_checkpoints",
    "put_back",
    "take",
]
