"""Data sets whose pictures are arrays in a few files: MNIST's IDX, CIFAR-10's records. They are read as a whole."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from minga.data.directory import lies_here
from minga.data.readers.base import PARTS, Picture, Reader, Sample
from minga.data.readers.shaping import shape_array
from minga.errors import DataError

__all__ = ["ArrayReader", "open_cifar10", "open_idx", "read_cifar10_records"]

_IDX = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
_CIFAR10 = {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)}
_CIFAR10_RECORD = 1 + 3 * 32 * 32


class ArrayReader(Reader):
    """Pictures (samples x channels x height x width, bytes) and their classes, in memory."""

    scale = 1 / 255

    def __init__(
        self,
        parts: dict[str, tuple[NDArray[np.uint8], NDArray[np.int64]]],
        classes: Sequence[str],
        picture: Picture,
    ) -> None:
        self._pictures = np.concatenate([pictures for pictures, _ in parts.values()])
        self.labels = np.concatenate([labels for _, labels in parts.values()])
        self.given_parts = np.repeat(
            np.array([PARTS.index(part) for part in parts], dtype=np.int8),
            [len(labels) for _, labels in parts.values()],
        )
        self.classes = list(classes) or [str(number) for number in range(int(self.labels.max(initial=0)) + 1)]
        if len(self.labels) and int(self.labels.max()) >= len(self.classes):
            raise DataError(f"there is a class {int(self.labels.max())}, and only {len(self.classes)} have names")
        self._picture = picture
        self.costly = picture.grey or picture.width is not None

    def __len__(self) -> int:
        return len(self._pictures)

    def read(self, index: int) -> Sample:
        assert self.labels is not None
        return {"inputs": shape_array(self._pictures[index], self._picture), "targets": self.labels[index]}


def open_idx(folder: Path, classes: Sequence[str], picture: Picture) -> ArrayReader:
    """MNIST and its relatives."""
    # Torch is imported with the tensors' reader, which checks headers; only those who have IDX files wait for it.
    from minga.data.idx import read_idx

    parts = {}
    for part, files in _IDX.items():
        for file in files:
            if lies_here(folder / file) is None:
                raise DataError(f"{folder} has no {file} (plain or .gz); fetch the data set first")
        pictures, labels = (read_idx(folder / file).numpy() for file in files)
        if pictures.ndim != 3 or labels.shape != pictures.shape[:1]:
            raise DataError(f"{folder}: pictures {pictures.shape} and classes {labels.shape} don't match")
        parts[part] = (pictures[:, None], labels.astype(np.int64))
    return ArrayReader(parts, classes, picture)


def read_cifar10_records(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pictures (samples x 3 x 32 x 32, bytes) and classes of one of CIFAR-10's binary files, or of its `.gz`."""
    here = lies_here(path)
    if here is None:
        raise DataError(f"there is no {path} (plain or .gz); fetch it: minga data fetch cifar10")
    try:
        content = here.read_bytes() if here == path else gzip.decompress(here.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{here} can't be read ({error}); fetch the file again") from None
    if not content or len(content) % _CIFAR10_RECORD:
        raise DataError(
            f"{here} has {len(content):,} bytes, which are no records of {_CIFAR10_RECORD:,}; fetch the file again"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, _CIFAR10_RECORD)
    if int(records[:, 0].max()) > 9:
        raise DataError(f"{here} has a class {int(records[:, 0].max())}, but there are ten; fetch the file again")
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def open_cifar10(folder: Path, classes: Sequence[str], picture: Picture) -> ArrayReader:
    """CIFAR-10 in its binary form."""
    parts = {}
    for part, files in _CIFAR10.items():
        read = [read_cifar10_records(folder / file) for file in files]
        parts[part] = (np.concatenate([pictures for pictures, _ in read]), np.concatenate([each for _, each in read]))
    return ArrayReader(parts, classes, picture)
