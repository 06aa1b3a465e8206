"""The IDX format: plain and compressed, whole and damaged."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from minga.data.idx import read_idx
from minga.errors import DataError


def idx(shape: tuple[int, ...], content: bytes, kind: int = 0x08) -> bytes:
    return bytes([0, 0, kind, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + content


PICTURES = idx((2, 2, 3), bytes(range(12)))
EXPECTED = torch.arange(12, dtype=torch.uint8).view(2, 2, 3)


def test_a_plain_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "pictures").write_bytes(PICTURES)
    assert torch.equal(read_idx(tmp_path / "pictures"), EXPECTED)


def test_a_compressed_file_is_read_by_its_plain_name(tmp_path: Path) -> None:
    (tmp_path / "pictures.gz").write_bytes(gzip.compress(PICTURES))
    assert torch.equal(read_idx(tmp_path / "pictures"), EXPECTED)


def test_a_plain_file_goes_before_a_compressed_one(tmp_path: Path) -> None:
    (tmp_path / "labels").write_bytes(idx((1,), b"\x01"))
    (tmp_path / "labels.gz").write_bytes(gzip.compress(idx((1,), b"\x02")))
    assert read_idx(tmp_path / "labels").tolist() == [1]


def test_what_was_read_can_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "pictures").write_bytes(PICTURES)
    read_idx(tmp_path / "pictures").zero_()


@given(shape=st.lists(st.integers(0, 5), min_size=1, max_size=4).map(tuple), data=st.data())
def test_any_shape_is_read(
    tmp_path_factory: pytest.TempPathFactory, shape: tuple[int, ...], data: st.DataObject
) -> None:
    elements = int(torch.Size(shape).numel())
    content = data.draw(st.binary(min_size=elements, max_size=elements))
    path = tmp_path_factory.getbasetemp() / "any.idx"
    path.write_bytes(idx(shape, content))
    array = read_idx(path)
    assert array.dtype == torch.uint8
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
