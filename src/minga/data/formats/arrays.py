"""Data sets whose pictures are arrays in a few files: MNIST's IDX, CIFAR-10's records. They are read as a whole.

pictures, labels = read_idx_part(Path("data/mnist"), "train")         # 60000 x 1 x 28 x 28 bytes, 60000 numbers
pictures, labels = read_cifar10_part(Path("data/cifar10"), "test")    # 10000 x 3 x 32 x 32 bytes: red, green, blue
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from minga.data.formats.base import PARTS, PictureShape, RawSample, Reader
from minga.data.formats.shaping import shape_array
from minga.data.packed import read_plain
from minga.errors import DataError

__all__ = ["CIFAR10_FILES", "IDX_FILES", "ArrayReader", "read_cifar10_part", "read_idx", "read_idx_part"]

PictureArrays = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Pictures, samples x channels x height x width, and their classes."""

IDX_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
CIFAR10_FILES = {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)}
_UNSIGNED_BYTE = 0x08
_CIFAR10_RECORD = 1 + 3 * 32 * 32
_CIFAR10_CLASSES = 10


class ArrayReader(Reader):
    """Pictures and their classes, in memory: MNIST and its relatives, CIFAR-10 (Krizhevsky, 2009) as binary files."""

    scale = 1 / 255

    def __init__(
        self,
        read_part: Callable[[Path, str], PictureArrays],
        folder: Path,
        classes: Sequence[str],
        picture: PictureShape,
    ) -> None:
        parts = {part: read_part(folder, part) for part in ("train", "test")}
        shapes = {part: pictures.shape[1:] for part, (pictures, _) in parts.items()}
        if len(set(shapes.values())) > 1:
            raise DataError(f"the parts have pictures of different shapes ({shapes}); fetch the files again")
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

    def read(self, index: int) -> RawSample:
        assert self.labels is not None
        return {"inputs": shape_array(self._pictures[index], self._picture), "targets": self.labels[index]}


def read_idx_part(folder: Path, part: str) -> PictureArrays:
    """The pictures to train on or to test on."""
    pictures, labels = (read_idx(folder / file) for file in IDX_FILES[part])
    if pictures.ndim != 3 or labels.shape != pictures.shape[:1]:
        raise DataError(f"{folder}: {part} pictures {pictures.shape} and classes {labels.shape} don't match")
    return pictures[:, None], labels.astype(np.int64)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """The array in an IDX file: a header with the shape, then unsigned bytes."""
    content = read_plain(path)
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
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape).copy()


def read_cifar10_part(folder: Path, part: str) -> PictureArrays:
    """The pictures to train on or to test on."""
    records = np.concatenate([_cifar10_records(folder / file) for file in CIFAR10_FILES[part]])
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def _cifar10_records(path: Path) -> NDArray[np.uint8]:
    """Of each picture a byte for its class, and 3,072 for its colours."""
    content = read_plain(path)
    if not content or len(content) % _CIFAR10_RECORD:
        raise DataError(
            f"{path} has {len(content):,} bytes, which is no multiple of a picture's {_CIFAR10_RECORD:,}; fetch the "
            "file again"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, _CIFAR10_RECORD)
    if (highest := int(records[:, 0].max())) >= _CIFAR10_CLASSES:
        raise DataError(f"{path}: a picture has class {highest}, where 9 is the last; fetch the file again")
    return records
