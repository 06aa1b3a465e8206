"""CIFAR-10's own binary form."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from minga.data.cifar10 import read_cifar10
from minga.errors import DataError


def record(number: int, red: int, green: int, blue: int) -> bytes:
    return bytes([number]) + bytes([red]) * 1024 + bytes([green]) * 1024 + bytes([blue]) * 1024


def test_a_picture_is_its_class_and_three_planes(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(record(3, 1, 2, 3) + record(9, 4, 5, 6))
    (tmp_path / "b.bin.gz").write_bytes(gzip.compress(record(0, 7, 8, 9)))
    pictures, classes = read_cifar10(tmp_path, ["a.bin", "b.bin"])
    assert classes.tolist() == [3, 9, 0] and pictures.shape == (3, 3, 32, 32) and pictures.dtype == torch.uint8
    assert pictures[:, :, 5, 7].tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_rows_come_before_columns(tmp_path: Path) -> None:
    plane = np.arange(1024) % 256
    (tmp_path / "a.bin").write_bytes(bytes([0]) + plane.astype(np.uint8).tobytes() * 3)
    pictures, _ = read_cifar10(tmp_path, ["a.bin"])
    assert pictures[0, 0, 0, 1] == 1 and pictures[0, 0, 1, 0] == 32


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (record(3, 1, 2, 3)[:-1], "3,072 bytes, which is no multiple of a picture's 3,073"),
        (b"", "0 bytes, which is no multiple"),
        (record(10, 1, 2, 3), "a picture has class 10"),
    ],
)
def test_damaged_files_are_told(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "a.bin").write_bytes(content)
    with pytest.raises(DataError, match=says):
        read_cifar10(tmp_path, ["a.bin"])


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.bin can't be read"):
        read_cifar10(tmp_path, ["a.bin"])
