"""The backend's own all-reduce: the baseline that the others are measured against."""

from __future__ import annotations

from minga.base.lazy import Tensor
from minga.comm.transport import Transport

__all__ = ["native"]


def native(comm: Transport, vector: Tensor) -> None:
    """Add up `vector` over all ranks, in place, with what gloo or NCCL brings."""
    comm.all_reduce(vector).wait()
