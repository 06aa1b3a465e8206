"""Flickr8k (Hodosh et al., 2013) in its original files: captions of photographs, the standard split, features.

captions = read_captions(directory)                 # {"1000268201_693b08cb0e.jpg": ["A child in a ...", ...]}
names = read_names(directory, "test")               # of the 1,000 photographs to be tested on
features = read_features(path)                      # {name: vector}, computed by some encoder before
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from minga.data.text import read_text
from minga.errors import DataError

__all__ = ["CAPTIONS", "SPLITS", "Features", "find_features", "read_captions", "read_features", "read_names"]

CAPTIONS = "Flickr8k.token.txt"
SPLITS = {
    "train": "Flickr_8k.trainImages.txt",
    "dev": "Flickr_8k.devImages.txt",
    "test": "Flickr_8k.testImages.txt",
}


@dataclass(frozen=True)
class Features:
    """Photographs as an encoder sees them: a row for each name."""

    names: list[str]
    vectors: Tensor

    @property
    def width(self) -> int:
        return int(self.vectors.shape[1])

    def of(self, names: list[str]) -> Tensor:
        """Their rows; `DataError` for a photograph that has none."""
        place = {name: at for at, name in enumerate(self.names)}
        missing = [name for name in names if name not in place]
        if missing:
            raise DataError(
                f"there are no features of {missing[0]}{f' and {len(missing) - 1} others' if missing[1:] else ''}; "
                "compute them for all photographs"
            )
        return self.vectors[torch.tensor([place[name] for name in names], dtype=torch.int64)]


def read_captions(directory: Path) -> dict[str, list[str]]:
    """Captions by photograph, in the order of the file, without an id of the original that has no photograph."""
    captions: dict[str, list[str]] = {}
    path = directory / CAPTIONS
    for number, line in enumerate(_lines(path), start=1):
        key, tab, caption = line.partition("\t")
        name, mark, _ = key.partition("#")
        if not tab or not mark:
            raise DataError(f"{path}, line {number}: {line[:60]!r} is not NAME#NUMBER, a tab, a caption")
        if name.endswith((".jpg", ".jpeg", ".png")):  # the original has 2258277193_586949ec62.jpg.1, which is nothing
            captions.setdefault(name, []).append(caption)
    return captions


def read_names(directory: Path, split: str) -> list[str]:
    """The photographs of a part of the standard split: train, dev or test."""
    return _lines(directory / SPLITS[split])


def find_features(directory: Path) -> Path:
    """The one file with features in a directory."""
    found = sorted(directory.glob("features*.npz"))
    if not found:
        raise DataError(
            f"{directory} has no features of the photographs (features*.npz with names and feats); compute them: "
            "minga caption FOLDER --encoder vgg16 --features-to FILE.npz"
        )
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise DataError(f"{directory} has several files of features ({names}); leave the one to be used there")
    return found[0]


def read_features(path: Path) -> Features:
    """`names` and `feats` of an .npz file, whatever else is in it. Pickled arrays are refused."""
    try:
        with np.load(path, allow_pickle=False) as content:
            names, vectors = content["names"], content["feats"]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} can't be read as features ({error}); it should have names and feats") from error
    if vectors.ndim != 2 or len(names) != len(vectors) or vectors.dtype not in (np.float16, np.float32):
        raise DataError(
            f"{path}: feats should be names x numbers in float16 or float32, not {vectors.dtype} {vectors.shape} "
            f"for {len(names)} names"
        )
    return Features([str(name) for name in names], torch.from_numpy(vectors))


def _lines(path: Path) -> list[str]:
    return [line.strip() for line in read_text(path).splitlines() if line.strip()]
