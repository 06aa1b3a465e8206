"""Flickr8k's original files, and files of features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from minga.data.flickr8k import CAPTIONS, find_features, read_captions, read_features, read_names
from minga.errors import DataError


def test_captions_by_photograph_without_the_id_that_is_none(tmp_path: Path) -> None:
    lines = ["b.jpg#0\tA dog .", "a.jpg#0\tA cat .", "b.jpg#1\tThe dog .", "2258277193_586949ec62.jpg.1#0\tNothing ."]
    (tmp_path / CAPTIONS).write_text("\n".join(lines))
    assert read_captions(tmp_path) == {"b.jpg": ["A dog .", "The dog ."], "a.jpg": ["A cat ."]}


def test_a_line_that_is_no_caption_is_told_with_its_number(tmp_path: Path) -> None:
    (tmp_path / CAPTIONS).write_text("b.jpg#0\tA dog .\nnothing at all\n")
    with pytest.raises(DataError, match=r"line 2: 'nothing at all' is not NAME#NUMBER"):
        read_captions(tmp_path)


def test_names_of_a_split(tmp_path: Path) -> None:
    (tmp_path / "Flickr_8k.testImages.txt").write_text("a.jpg\nb.jpg\n\n")
    assert read_names(tmp_path, "test") == ["a.jpg", "b.jpg"]


def test_features_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "features.npz", names=np.array(["a", "b"]), feats=np.eye(2, 3, dtype=np.float16))
    features = read_features(find_features(tmp_path))
    assert features.width == 3 and features.of(["b", "a", "b"]).tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0]]
    with pytest.raises(DataError, match="no features of c and 1 others"):
        features.of(["a", "c", "d"])


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
