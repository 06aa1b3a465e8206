"""CIFAR-10 (Krizhevsky, 2009) in its original binary files: each picture a byte for its class, 3,072 for colours."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from minga.errors import DataError

__all__ = ["CLASSES", "TEST_FILES", "TRAIN_FILES", "read_cifar10"]

TRAIN_FILES = [f"data_batch_{number}.bin" for number in range(1, 6)]
TEST_FILES = ["test_batch.bin"]
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_RECORD = 1 + 3 * 32 * 32


def read_cifar10(directory: Path, files: list[str]) -> tuple[Tensor, Tensor]:
    """Pictures (samples x 3 x 32 x 32, unsigned bytes: red, green, blue) and their classes."""
    contents = [_read(directory / file) for file in files]
    records = torch.from_numpy(np.concatenate(contents))
    classes = records[:, 0].long()
    if int(classes.max()) >= len(CLASSES):
        raise DataError(
            f"{directory}: a picture has class {int(classes.max())}, where 9 is the last; fetch the files again"
        )
    return records[:, 1:].reshape(-1, 3, 32, 32), classes


def _read(path: Path) -> np.ndarray:
    try:
        content = (
            path.read_bytes() if path.is_file() else gzip.decompress(path.with_name(f"{path.name}.gz").read_bytes())
        )
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} can't be read ({error}); fetch the file again") from error
    if not content or len(content) % _RECORD:
        raise DataError(
            f"{path} has {len(content):,} bytes, which is no multiple of a picture's {_RECORD:,}; fetch the file again"
        )
    return np.frombuffer(content, dtype=np.uint8).reshape(-1, _RECORD)
