"""Flickr8k: captions of photographs, the standard lists, and features that were computed from the photographs.

captions = read_captions(folder / "Flickr8k.token.txt")          # {"1000268201_693b08cb0e.jpg": ["A child ...", ...]}
names, features = read_features(folder / "features_....npz")     # 8,091 names, 8091 x 1280
"""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from minga.data.readers.base import Reader, Sample
from minga.errors import DataError

__all__ = ["BEGIN", "END", "PADDING", "UNKNOWN", "CaptionReader", "read_captions", "read_features", "words_of"]

PADDING, BEGIN, END, UNKNOWN = range(4)
_SPECIAL = ("<padding>", "<begin>", "<end>", "<unknown>")
_LISTS = ("Flickr_8k.trainImages.txt", "Flickr_8k.devImages.txt", "Flickr_8k.testImages.txt")
_LINE = re.compile(r"(?P<name>[^#\t]+)#(?P<number>\d+)\t(?P<words>.*)")


def read_captions(path: Path) -> dict[str, list[str]]:
    """The captions of each photograph, in their order."""
    captions: dict[str, list[str]] = {}
    for number, line in enumerate(_lines(path), start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise DataError(f"{path}, line {number}: no name#number and caption: {line[:60]!r}")
        captions.setdefault(match["name"], []).append(match["words"])
    return captions


def read_features(path: Path) -> tuple[list[str], NDArray[np.floating]]:
    """Names of photographs and what a network made of each; nothing in the file can run."""
    try:
        with np.load(path, allow_pickle=False) as file:
            names, features = file["names"], file["feats"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} has no 'names' and 'feats' that can be read ({error})") from None
    if features.ndim != 2 or names.shape != features.shape[:1] or names.dtype.kind not in "US":
        raise DataError(f"{path}: names {names.shape} and features {features.shape} don't belong together")
    return [str(name) for name in names], features


def words_of(caption: str) -> list[str]:
    """In small letters, without punctuation."""
    return re.findall(r"[a-z0-9]+(?:'[a-z]+)?", caption.lower())


class CaptionReader(Reader):
    """A photograph's features and its captions as numbers of words; parts are the standard lists."""

    def __init__(self, folder: Path, *, least_often: int = 1) -> None:
        """`least_often`: words that occur more seldom in training captions are unknown."""
        captions = read_captions(folder / "Flickr8k.token.txt")
        found = sorted(folder.glob("features*.npz"))
        if not found:
            raise DataError(f"{folder} has no features*.npz with 'names' and 'feats'; bring one with --from DIR")
        names, self._features = read_features(found[0])
        row = {name: index for index, name in enumerate(names)}
        part = {name: index for index, path in enumerate(_LISTS) for name in _lines(folder / path)}
        self._names = [name for name in captions if name in row and name in part]
        self._rows = [row[name] for name in self._names]
        self.given_parts = np.array([part[name] for name in self._names], dtype=np.int8)
        words = [[words_of(caption) for caption in captions[name]] for name in self._names]
        counts = Counter(
            word for name, each in zip(self._names, words, strict=True) if part[name] == 0 for c in each for word in c
        )
        vocabulary = [*_SPECIAL, *sorted(word for word, count in counts.items() if count >= least_often)]
        self._most = max((len(each) for each in words), default=0)
        self._longest = 2 + max((len(caption) for each in words for caption in each), default=0)
        self._words = words
        self._number = {word: index for index, word in enumerate(vocabulary)}
        self.facts = {"vocabulary": vocabulary, "longest": self._longest, "features": found[0].name}

    def __len__(self) -> int:
        return len(self._names)

    def name_of(self, index: int) -> str:
        return self._names[index]

    def read(self, index: int) -> Sample:
        numbers = np.full((self._most, self._longest), PADDING, dtype=np.int32)
        for row, caption in zip(numbers, self._words[index], strict=False):
            coded = [BEGIN, *(self._number.get(word, UNKNOWN) for word in caption), END]
            row[: len(coded)] = coded
        return {"inputs": self._features[self._rows[index]], "targets": numbers}


def _lines(path: Path) -> Sequence[str]:
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} can't be read ({error}); fetch it: minga data fetch flickr8k") from None
