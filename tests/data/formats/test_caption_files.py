"""Flickr8k's original files, and files of features."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from minga.data.formats import Origin, open_reader
from minga.data.formats.base import BadSample
from minga.data.formats.captions import CAPTIONS, CaptionFiles, find_features, read_captions, read_features, read_names
from minga.data.formats.vocabulary import END, START, UNKNOWN, words_of
from minga.errors import DataError


def test_captions_by_photograph_without_the_id_that_is_none(tmp_path: Path) -> None:
    lines = ["b.jpg#0\tA dog .", "a.jpg#0\tA cat .", "b.jpg#1\tThe dog .", "2258277193_586949ec62.jpg.1#0\tNothing ."]
    (tmp_path / CAPTIONS).write_text("\n".join(lines))
    assert read_captions(tmp_path) == {"b.jpg": ["A dog .", "The dog ."], "a.jpg": ["A cat ."]}


def test_a_line_that_is_no_caption_is_told_with_its_number(tmp_path: Path) -> None:
    for line in ("nothing at all", "b.jpg#one\tThe dog ."):
        (tmp_path / CAPTIONS).write_text(f"b.jpg#0\tA dog .\n{line}\n")
        with pytest.raises(DataError, match=f"line 2: {line!r} is not NAME#NUMBER".replace("\\", r"\\")):
            read_captions(tmp_path)


def test_captions_may_be_packed(tmp_path: Path) -> None:
    (tmp_path / f"{CAPTIONS}.gz").write_bytes(gzip.compress(b"b.jpg#0\tA dog .\n"))
    assert read_captions(tmp_path) == {"b.jpg": ["A dog ."]}


def test_names_of_a_split(tmp_path: Path) -> None:
    (tmp_path / "Flickr_8k.testImages.txt").write_text("a.jpg\nb.jpg\n\n")
    assert read_names(tmp_path, "test") == ["a.jpg", "b.jpg"]


def test_features_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "features.npz", names=np.array(["a", "b"]), feats=np.eye(2, 3, dtype=np.float16))
    names, vectors = read_features(find_features(tmp_path))
    assert names == ["a", "b"] and np.array_equal(vectors, np.eye(2, 3)) and vectors.dtype == np.float16


def test_pickles_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "features.npz", names=np.array(["a", {}], dtype=object), feats=np.eye(2, dtype=np.float32))
    with pytest.raises(DataError, match="can't be read as features"):
        read_features(tmp_path / "features.npz")


def test_shapes_that_do_not_fit_are_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "features.npz", names=np.array(["a"]), feats=np.eye(2, dtype=np.float32))
    with pytest.raises(DataError, match=r"not float32 \(2, 2\) for 1 names"):
        read_features(tmp_path / "features.npz")


def test_none_or_several_files_of_features_are_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--features-to"):
        find_features(tmp_path)
    for name in ("features_a.npz", "features_b.npz"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(DataError, match=r"features_a.npz, features_b.npz"):
        find_features(tmp_path)


def captioned(folder: Path) -> Path:
    lines = [f"{name}.jpg#{number}\t{word} dog , running !" for name in "abcd" for number, word in enumerate("AB")]
    (folder / "Flickr8k.token.txt").write_text("\n".join([*lines, "odd.jpg.1#0\tNo picture ."]) + "\n")
    (folder / "Flickr_8k.trainImages.txt").write_text("a.jpg\nb.jpg\n")
    (folder / "Flickr_8k.devImages.txt").write_text("c.jpg\n")
    (folder / "Flickr_8k.testImages.txt").write_text("d.jpg\n")
    features = np.arange(8, dtype=np.float16).reshape(4, 2)
    np.savez(folder / "features_small.npz", names=np.array([f"{n}.jpg" for n in "dcba"]), feats=features)
    return folder


def test_captions_with_features(tmp_path: Path) -> None:
    reader = open_reader(Origin(reader="captions", path=str(captioned(tmp_path))))
    assert [reader.name_of(index) for index in range(4)] == ["a.jpg", "b.jpg", "c.jpg", "d.jpg"]
    assert reader.given_parts is not None and reader.given_parts.tolist() == [0, 0, 1, 2]
    words = reader.facts["vocabulary"]
    assert words[:3] == ["", "<start>", "<unknown>"] and words[3:] == ["dog", "running", "a", "b"]
    sample = reader.read(0)
    assert sample["inputs"].tolist() == [6, 7] and sample["targets"].dtype == np.int32
    assert [words[number] for number in sample["targets"][1]] == ["<start>", "b", "dog", "running", ""]
    assert (END, START, UNKNOWN) == (0, 1, 2)


def test_words_that_only_others_say_are_unknown_in_a_prepared_set(tmp_path: Path) -> None:
    with (captioned(tmp_path) / CAPTIONS).open("a") as file:
        file.write("d.jpg#2\tA heron .\n")
    reader = open_reader(Origin(reader="captions", path=str(tmp_path)))
    assert "heron" not in reader.facts["vocabulary"]
    assert [reader.read(index)["targets"].shape for index in range(4)] == [(3, 5)] * 4
    assert reader.read(3)["targets"][2].tolist() == [START, 5, UNKNOWN, END, END]
    assert reader.read(0)["targets"][2].tolist() == [END] * 5  # there is no third one


def test_a_photograph_without_features_is_a_bad_sample(tmp_path: Path) -> None:
    folder = captioned(tmp_path)
    np.savez(folder / "features_small.npz", names=np.array(["a.jpg", "b.jpg", "d.jpg"]), feats=np.eye(3, dtype="f4"))
    reader = open_reader(Origin(reader="captions", path=str(folder)))
    outcomes = [str(each) if isinstance(each, BadSample) else "fine" for each in reader.samples(range(4))]
    assert outcomes == ["fine", "fine", "there are no features of it", "fine"]


def test_a_photograph_of_the_split_without_captions_is_told(tmp_path: Path) -> None:
    (captioned(tmp_path) / "Flickr_8k.devImages.txt").write_text("c.jpg\ne.jpg\n")
    with pytest.raises(DataError, match=r"no caption of e\.jpg, which the split names"):
        CaptionFiles.read(tmp_path, at_least=1)


def test_features_that_are_none(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", names=np.array([{"a": 1}], dtype=object), feats=np.zeros((1, 2)))
    (tmp_path / "y.npz").write_bytes(b"nothing")
    for name in ("x", "y"):
        with pytest.raises(DataError, match="can't be read as features"):
            read_features(tmp_path / f"{name}.npz")


def test_words_are_without_punctuation_and_numbers() -> None:
    assert words_of("A dog's ball , in-line #3 .") == ["a", "dog's", "ball", "in", "line"]
