"""Whether all ranks have the same, without sending it."""

from __future__ import annotations

import torch

from minga.comm.collectives.tree import broadcast, tree
from minga.comm.transport import Transport

__all__ = ["same_everywhere"]


def same_everywhere(comm: Transport, digest: str) -> bool:
    """Whether all ranks have the same digest, of 16 hexadecimal digits; an empty one counts as zero."""
    own = int(digest or "0", 16) >> 1  # without the bit that would be a sign
    first = torch.full((1,), own)
    broadcast(comm, first)
    others = torch.tensor([float(int(first) != own)], dtype=torch.float64)
    tree(comm, others)
    return not float(others)
