"""Whether all ranks have the same, without sending it."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from minga.comm.collectives.tree import broadcast, tree
from minga.comm.transport import Transport

__all__ = ["same_everywhere"]


def same_everywhere(comm: Transport, vector: Tensor) -> bool:
    """Whether all ranks have the same bits, by the digest that rank 0 tells. Without values, they are taken to."""
    digest = 0
    if not vector.is_meta:
        content = vector.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data
        digest = int.from_bytes(hashlib.sha256(content).digest()[:8], "big") >> 1
    first = torch.full((1,), digest)
    broadcast(comm, first)
    others = torch.tensor([float(int(first) != digest)], dtype=torch.float64)
    tree(comm, others)
    return not float(others)
