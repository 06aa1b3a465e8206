"""Pictures in arrays: IDX files and CIFAR-10's records, plain and compressed, whole and damaged."""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minga.data.formats import Origin, open_reader
from minga.data.formats.arrays import read_cifar10_part, read_idx
from minga.data.formats.base import PictureShape
from minga.errors import DataError


def idx(shape: tuple[int, ...], content: bytes, kind: int = 0x08) -> bytes:
    return bytes([0, 0, kind, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + content


PICTURES = idx((2, 2, 3), bytes(range(12)))
EXPECTED = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)


def test_a_plain_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "pictures").write_bytes(PICTURES)
    assert np.array_equal(read_idx(tmp_path / "pictures"), EXPECTED)


def test_a_compressed_file_is_read_by_its_plain_name(tmp_path: Path) -> None:
    (tmp_path / "pictures.gz").write_bytes(gzip.compress(PICTURES))
    assert np.array_equal(read_idx(tmp_path / "pictures"), EXPECTED)


def test_a_plain_file_goes_before_a_compressed_one(tmp_path: Path) -> None:
    (tmp_path / "labels").write_bytes(idx((1,), b"\x01"))
    (tmp_path / "labels.gz").write_bytes(gzip.compress(idx((1,), b"\x02")))
    assert read_idx(tmp_path / "labels").tolist() == [1]


def test_what_was_read_can_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "pictures").write_bytes(PICTURES)
    read_idx(tmp_path / "pictures").fill(0)


@given(shape=st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple), data=st.data())
def test_any_shape_is_read(
    tmp_path_factory: pytest.TempPathFactory, shape: tuple[int, ...], data: st.DataObject
) -> None:
    elements = math.prod(shape)
    content = data.draw(st.binary(min_size=elements, max_size=elements))
    path = tmp_path_factory.getbasetemp() / "any.idx"
    path.write_bytes(idx(shape, content))
    array = read_idx(path)
    assert array.dtype == np.uint8
    assert tuple(array.shape) == shape
    assert bytes(array.flatten().tolist()) == content


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(PICTURES[:-1], "has 27 bytes where its header says 28", id="truncated"),
        pytest.param(PICTURES[:16], "has 16 bytes where its header says 28", id="header only"),
        pytest.param(PICTURES + b"\0", "has 29 bytes where its header says 28", id="too long"),
        pytest.param(b"", "is no IDX file of bytes", id="empty"),
        pytest.param(b"\0\0\x08", "is no IDX file of bytes", id="three bytes"),
        pytest.param(b"<html>", r"is no IDX file of bytes \(it starts with 3c68746d\)", id="a web page"),
        pytest.param(idx((1,), b"\0" * 4, kind=0x0D), r"it starts with 00000d01", id="floats"),
        pytest.param(gzip.compress(PICTURES), r"it starts with 1f8b08", id="compressed without .gz"),
    ],
)
def test_a_damaged_file_is_refused_with_a_remedy(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "pictures"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"^{path} .*{reason}.*; fetch the file again$"):
        read_idx(path)


COMPRESSED = gzip.compress(PICTURES)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(COMPRESSED[:-9], id="truncated"),
        pytest.param(COMPRESSED[:-8] + b"\0" * 8, id="wrong checksum"),
        pytest.param(COMPRESSED[:10] + b"\xff" * 20, id="garbage inside"),
        pytest.param(PICTURES, id="not compressed"),
        pytest.param(gzip.compress(PICTURES[:-1]), id="truncated before it was compressed"),
    ],
)
def test_a_damaged_compressed_file_is_refused_with_a_remedy(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pictures.gz").write_bytes(content)
    with pytest.raises(DataError, match=f"^{tmp_path / 'pictures'} .*; fetch the file again$"):
        read_idx(tmp_path / "pictures")


def test_a_missing_file_is_named_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"^{tmp_path / 'pictures'} can't be read \(.*\); fetch the file again$"):
        read_idx(tmp_path / "pictures")


def test_a_file_that_ends_within_its_header(tmp_path: Path) -> None:
    (tmp_path / "cut").write_bytes(bytes([0, 0, 8, 3, 0, 0, 0, 1, 0]))
    with pytest.raises(DataError, match="ends within its header; fetch the file again"):
        read_idx(tmp_path / "cut")


def cifar10(folder: Path, records: int = 3) -> Path:
    """Six files; each pixel's value is the number of its file."""
    for number in range(6):
        name = "test_batch.bin" if number == 5 else f"data_batch_{number + 1}.bin"
        record = bytes([number]) + bytes([number]) * 3072
        (folder / name).write_bytes(record * records)
    return folder


def test_cifar10(tmp_path: Path) -> None:
    classes = tuple("abcdefghij")
    reader = open_reader(Origin(reader="cifar10", path=str(cifar10(tmp_path)), classes=classes))
    assert len(reader) == 18 and reader.classes == list(classes)
    assert reader.given_parts is not None and reader.given_parts.tolist() == [0] * 15 + [2] * 3
    sample = reader.read(4)
    assert sample["inputs"].shape == (3, 32, 32) and int(sample["inputs"].max()) == 1 and int(sample["targets"]) == 1


def test_cifar10_in_another_shape(tmp_path: Path) -> None:
    origin = Origin(reader="cifar10", path=str(cifar10(tmp_path)), picture=PictureShape(width=16, height=8, grey=True))
    assert open_reader(origin).read(0)["inputs"].shape == (1, 8, 16)


def record(number: int, red: int, green: int, blue: int) -> bytes:
    return bytes([number]) + bytes([red]) * 1024 + bytes([green]) * 1024 + bytes([blue]) * 1024


def test_a_picture_is_its_class_and_three_planes(tmp_path: Path) -> None:
    cifar10(tmp_path, records=1)
    (tmp_path / "data_batch_1.bin").write_bytes(record(3, 1, 2, 3) + record(9, 4, 5, 6))
    (tmp_path / "data_batch_2.bin").unlink()
    (tmp_path / "data_batch_2.bin.gz").write_bytes(gzip.compress(record(0, 7, 8, 9)))
    pictures, classes = read_cifar10_part(tmp_path, "train")
    assert classes.tolist() == [3, 9, 0, 2, 3, 4] and classes.dtype == np.int64
    assert pictures.shape == (6, 3, 32, 32) and pictures.dtype == np.uint8
    assert pictures[:3, :, 5, 7].tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_rows_come_before_columns(tmp_path: Path) -> None:
    plane = np.arange(1024) % 256
    (tmp_path / "test_batch.bin").write_bytes(bytes([0]) + plane.astype(np.uint8).tobytes() * 3)
    pictures, _ = read_cifar10_part(tmp_path, "test")
    assert pictures[0, 0, 0, 1] == 1 and pictures[0, 0, 1, 0] == 32


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (record(3, 1, 2, 3)[:-1], "3,072 bytes, which is no multiple of a picture's 3,073"),
        (b"", "0 bytes, which is no multiple"),
        (record(10, 1, 2, 3), "a picture has class 10, where 9 is the last"),
    ],
)
def test_damaged_records_are_told(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "test_batch.bin").write_bytes(content)
    with pytest.raises(DataError, match=rf"test_batch\.bin.* {says}"):
        read_cifar10_part(tmp_path, "test")


def test_missing_records_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"test_batch\.bin can't be read"):
        read_cifar10_part(tmp_path, "test")


def test_idx_files(tmp_path: Path) -> None:
    for part, count in (("train", 4), ("t10k", 2)):
        pictures = np.arange(count * 6, dtype=np.uint8).reshape(count, 2, 3)
        header = b"\0\0\x08\x03" + struct.pack(">3I", *pictures.shape)
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(header + pictures.tobytes())
        labels = b"\0\0\x08\x01" + struct.pack(">I", count) + bytes(range(count))
        (tmp_path / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    reader = open_reader(Origin(reader="idx", path=str(tmp_path)))
    assert len(reader) == 6 and reader.classes == ["0", "1", "2", "3"]
    assert reader.read(1)["inputs"].tolist() == [[[6, 7, 8], [9, 10, 11]]]
    (tmp_path / "t10k-images-idx3-ubyte").unlink()
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte can't be read"):
        open_reader(Origin(reader="idx", path=str(tmp_path)))


def test_parts_of_different_shapes_are_told(tmp_path: Path) -> None:
    for part, side in (("train", 28), ("t10k", 32)):
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(idx((1, side, side), bytes(side * side)))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx((1,), b"\x00"))
    with pytest.raises(DataError, match=r"parts have pictures of different shapes .*28.*32"):
        open_reader(Origin(reader="idx", path=str(tmp_path)))
