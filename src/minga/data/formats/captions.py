"""Flickr8k (Hodosh et al., 2013) in its original files: captions of photographs, the standard split, features.

captions = read_captions(folder)                     # {"1000268201_693b08cb0e.jpg": ["A child in a ...", ...]}
names = read_names(folder, "test")                   # of the 1,000 photographs to be tested on
names, vectors = read_features(find_features(folder))       # computed by some encoder before: 8,091 names, 8091 x 1280
"""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from minga.data.formats.base import BadSample, RawSample, Reader
from minga.data.formats.vocabulary import Vocabulary, padded_groups
from minga.data.packed import DAMAGE, plain_text
from minga.errors import DataError

__all__ = [
    "CAPTIONS",
    "SPLITS",
    "CaptionFiles",
    "CaptionReader",
    "find_features",
    "read_captions",
    "read_features",
    "read_names",
]

CAPTIONS = "Flickr8k.token.txt"
SPLITS = {
    "train": "Flickr_8k.trainImages.txt",
    "dev": "Flickr_8k.devImages.txt",
    "test": "Flickr_8k.testImages.txt",
}
_LINE = re.compile(r"(?P<name>[^#\t]+)#\d+\t(?P<caption>.*)")
_PHOTOGRAPHS = (".jpg", ".jpeg", ".png")


def read_captions(folder: Path) -> dict[str, list[str]]:
    """Captions by photograph, in the order of the file, without an id of the original that has no photograph."""
    captions: dict[str, list[str]] = {}
    path = folder / CAPTIONS
    for number, line in enumerate(_lines(path), start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise DataError(f"{path}, line {number}: {line[:60]!r} is not NAME#NUMBER, a tab, a caption")
        if match["name"].endswith(_PHOTOGRAPHS):  # the original has 2258277193_586949ec62.jpg.1, which is nothing
            captions.setdefault(match["name"], []).append(match["caption"])
    return captions


def read_names(folder: Path, split: str) -> list[str]:
    """The photographs of a part of the standard split: train, dev or test."""
    return _lines(folder / SPLITS[split])


def find_features(folder: Path) -> Path:
    """The one file with features in a folder."""
    found = sorted(folder.glob("features*.npz"))
    if not found:
        raise DataError(
            f"{folder} has no features of the photographs (features*.npz with names and feats); compute them: "
            "minga caption FOLDER --encoder vgg16 --features-to FILE.npz, or bring them with --from DIR"
        )
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise DataError(f"{folder} has several files of features ({names}); leave the one to be used there")
    return found[0]


def read_features(path: Path) -> tuple[list[str], NDArray[np.floating]]:
    """`names` and `feats` of an .npz file, whatever else is in it. Pickled arrays are refused."""
    try:
        with np.load(path, allow_pickle=False) as content:
            names, vectors = content["names"], content["feats"]
    except (*DAMAGE, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} can't be read as features ({error}); it should have names and feats") from error
    if vectors.ndim != 2 or names.shape != vectors.shape[:1] or vectors.dtype not in (np.float16, np.float32):
        raise DataError(
            f"{path}: feats should be names x numbers in float16 or float32, not {vectors.dtype} {vectors.shape} "
            f"for {len(names)} names"
        )
    return [str(name) for name in names], vectors


@dataclass(frozen=True)
class CaptionFiles:
    """What people said of photographs, the standard split, and the words."""

    captions: dict[str, list[str]]
    names: dict[str, list[str]]
    """The photographs of train, dev and test."""
    vocabulary: Vocabulary

    @classmethod
    def read(cls, folder: Path, *, at_least: int) -> CaptionFiles:
        """`at_least`: how often a word must occur in training captions to be known."""
        captions = read_captions(folder)
        names = {split: read_names(folder, split) for split in SPLITS}
        untold = [name for split in names.values() for name in split if name not in captions]
        if untold:
            raise DataError(f"{folder / CAPTIONS} has no caption of {untold[0]}, which the split names; fetch it again")
        learned = [each for name in names["train"] for each in captions[name]]
        others = [each for split in ("dev", "test") for name in names[split] for each in captions[name]]
        return cls(captions, names, Vocabulary.of(learned, others, at_least=at_least))


class CaptionReader(Reader):
    """A photograph's features and its captions as numbers of words; parts are the standard split."""

    def __init__(self, folder: Path) -> None:
        files = CaptionFiles.read(folder, at_least=1)
        path = find_features(folder)
        names, self._features = read_features(path)
        self._row = {name: index for index, name in enumerate(names)}
        part = {name: index for index, split in enumerate(SPLITS) for name in files.names[split]}
        self._names = [name for name in files.captions if name in part]
        self.given_parts = np.array([part[name] for name in self._names], dtype=np.int8)
        sentences = [[files.vocabulary.encode(each) for each in files.captions[name]] for name in self._names]
        self._targets = padded_groups(sentences).astype(np.int32)
        words = files.vocabulary.words[: files.vocabulary.known]
        self.facts = {"vocabulary": words, "longest": self._targets.shape[2], "features": path.name}

    def __len__(self) -> int:
        return len(self._names)

    def name_of(self, index: int) -> str:
        return self._names[index]

    def read(self, index: int) -> RawSample:
        row = self._row.get(self._names[index])
        if row is None:
            raise BadSample("there are no features of it")
        return {"inputs": self._features[row], "targets": self._targets[index]}


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in plain_text(path).splitlines() if line.strip()]
