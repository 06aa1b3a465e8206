"""Text: read from files, turned into numbers, cut into pieces."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minga.data.formats import Origin, open_reader, origin_of_path
from minga.data.formats.text import as_numbers, pieces
from minga.data.packed import plain_text
from minga.errors import DataError

TEXT = "¡Minga!\nQué bien.\n"


def test_a_plain_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "play.txt").write_text(TEXT, encoding="utf-8")
    assert plain_text(tmp_path / "play.txt") == TEXT


def test_a_compressed_file_is_read_by_its_plain_name(tmp_path: Path) -> None:
    (tmp_path / "play.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    assert plain_text(tmp_path / "play.txt") == TEXT


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("play.txt", b"\xff\xfe", id="no UTF-8"),
        pytest.param("play.txt.gz", b"plain", id="not compressed"),
        pytest.param("play.txt.gz", gzip.compress(TEXT.encode())[:-9], id="truncated"),
        pytest.param("elsewhere", b"", id="missing"),
    ],
)
def test_what_can_not_be_read_is_named_with_a_remedy(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"^{tmp_path / 'play.txt'} can't be read \(.*\); fetch the file again$"):
        plain_text(tmp_path / "play.txt")


@given(text=st.text(max_size=50))
def test_numbers_stand_for_the_characters(text: str) -> None:
    numbers, characters = as_numbers(text)
    assert "".join(characters[number] for number in numbers.tolist()) == text
    assert characters == sorted(set(text))


@given(length=st.integers(0, 60), context=st.integers(1, 12))
def test_pieces_follow_each_other_and_each_character_is_told_by_the_one_before_it(length: int, context: int) -> None:
    numbers = np.arange(length)
    inputs, targets = pieces(numbers, context)
    assert inputs.shape == targets.shape == (max(0, length - 1) // context, context)
    assert inputs.flatten().tolist() == list(range(inputs.size))
    assert np.array_equal(targets, inputs + 1)


def test_as_many_pieces_are_cut_as_the_text_fills() -> None:
    assert len(pieces(np.arange(9), 4)[0]) == 2  # the ninth tells what follows the eighth
    assert len(pieces(np.arange(8), 4)[0]) == 1


@pytest.mark.parametrize("block", [3, 7, 1 << 20])
def test_a_text_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr("minga.data.formats.text._BLOCK", block)
    (tmp_path / "x.txt").write_text("hello wörld, hello\n", encoding="utf-8")
    reader = open_reader(Origin(reader="text", path=str(tmp_path / "x.txt"), context=4))
    characters = reader.facts["characters"]
    found = [
        ("".join(characters[i] for i in s["inputs"]), "".join(characters[i] for i in s["targets"]))  # type: ignore[index]
        for s in reader.samples(range(len(reader)))
    ]
    assert found == [("hell", "ello"), ("o wö", " wör"), ("rld,", "ld, "), (" hel", "hell")]
    assert [s["inputs"].tolist() for s in reader.samples([1, 3])] == [  # type: ignore[index]
        [characters.index(c) for c in "o wö"],
        [characters.index(c) for c in " hel"],
    ]


def test_texts_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("abc")
    with pytest.raises(DataError, match="don't fill a piece of 64"):
        open_reader(origin_of_path(tmp_path / "short.txt"))
    (tmp_path / "bytes.txt").write_bytes(bytes(range(256)))
    with pytest.raises(DataError, match="UTF-8"):
        open_reader(origin_of_path(tmp_path / "bytes.txt"))
