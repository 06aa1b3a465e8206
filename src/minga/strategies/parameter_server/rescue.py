"""The last resort of a server that has lost its shard, on disk too: the optimizer's state of the last checkpoint.

pieces = last_optimizer_state(run)  # empty if there is none
"""

from __future__ import annotations

from pathlib import Path

from minga.errors import CheckpointError
from minga.model.sliced_optimizer import Piece
from minga.training.checkpoints.optimizer_pieces import pieces_from
from minga.training.checkpoints.resume import find_last_good, load_shared

__all__ = ["last_optimizer_state"]


def last_optimizer_state(run: Path) -> list[Piece]:
    """Of all parameters, as of the last checkpoint that is whole."""
    try:
        state = load_shared(find_last_good(run))
    except CheckpointError:
        return []
    return pieces_from(state.facts["optimizer"], state.tensors)
