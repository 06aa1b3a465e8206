"""The IDX format of MNIST and its relatives: a header with the shape, then unsigned bytes."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from minga.errors import DataError

__all__ = ["read_idx"]

_UNSIGNED_BYTE = 0x08


def read_idx(path: Path) -> Tensor:
    """The array in `path` or `path.gz`, as unsigned bytes."""
    try:
        content = (
            path.read_bytes() if path.is_file() else gzip.decompress(path.with_name(f"{path.name}.gz").read_bytes())
        )
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} can't be read ({error}); fetch the file again") from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _UNSIGNED_BYTE:
        raise DataError(f"{path} is no IDX file of bytes (it starts with {content[:4].hex()}); fetch the file again")
    dimensions = content[3]
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise DataError(f"{path} ends within its header; fetch the file again")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    expected = header + int(np.prod(shape))
    if len(content) != expected:
        raise DataError(f"{path} has {len(content):,} bytes where its header says {expected:,}; fetch the file again")
    return torch.from_numpy(np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape).copy())
