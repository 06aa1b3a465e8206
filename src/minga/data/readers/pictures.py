"""A folder of pictures with a folder per class: `DIR/rose/1.jpg`, or `DIR/train/rose/1.jpg` where parts are given."""

from __future__ import annotations

import fnmatch
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from minga.data.readers.base import BadSample, Picture, Reader, Sample
from minga.data.readers.shaping import pillow, shape_image
from minga.errors import DataError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["PictureFolder"]

_ENDINGS = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
_PART_NAMES = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "dev": 1, "test": 2, "testing": 2}
_LOOKED_AT = 20


class PictureFolder(Reader):
    """Pictures in folders that are classes. They are opened one at a time, when they are asked for."""

    scale = 1 / 255
    costly = True

    def __init__(self, folder: Path, picture: Picture, class_folders: str = "*") -> None:
        """`class_folders`: what folders of pictures are called, `*` standing for the class; others are passed over."""
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}")
        self._folder = folder
        self._paths, names, parts = _look_around(folder, class_folders)
        if not self._paths:
            raise DataError(
                f"{folder} has no pictures in folders named {class_folders!r}: put them into a folder per class "
                f"(known endings: {', '.join(sorted(_ENDINGS))})"
            )
        self.classes = sorted(set(names))
        number = {name: index for index, name in enumerate(self.classes)}
        self.labels = np.array([number[name] for name in names], dtype=np.int64)
        self.given_parts = None if parts is None else np.array(parts, dtype=np.int8)
        self._picture = picture if picture.width is not None else self._as_they_are(picture)

    def __len__(self) -> int:
        return len(self._paths)

    def name_of(self, index: int) -> str:
        return self._paths[index].relative_to(self._folder).as_posix()

    def read(self, index: int) -> Sample:
        assert self.labels is not None
        return {"inputs": shape_image(_open(self._paths[index]), self._picture), "targets": self.labels[index]}

    def _as_they_are(self, picture: Picture) -> Picture:
        """Without a size that is asked for, all must have that of the first."""
        sizes = set()
        for path in self._paths[:: max(1, len(self._paths) // _LOOKED_AT)]:
            try:
                sizes.add(_open(path).size)
            except BadSample:
                continue
        if len(sizes) != 1:
            found = ", ".join(f"{width}x{height}" for width, height in sorted(sizes)[:3]) or "none that can be read"
            raise DataError(f"the pictures in {self._folder} are of several sizes ({found}, ...); give --resize WxH")
        width, height = sizes.pop()
        return Picture(width=width, height=height, grey=picture.grey)


def _look_around(folder: Path, pattern: str) -> tuple[list[Path], list[str], list[int] | None]:
    """Paths of pictures, their classes, and their parts where folders say them."""
    folder = _unwrapped(folder)
    inner = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    given = bool(inner) and all(name.lower() in _PART_NAMES for name in inner)
    paths: list[Path] = []
    names: list[str] = []
    parts: list[int] = []
    for top in [folder / name for name in inner] if given else [folder]:
        for path in _files(top):
            if path.suffix.lower() not in _ENDINGS or "__MACOSX" in path.parts or path.name.startswith("."):
                continue
            name = _class_of(path.relative_to(top), pattern)
            if name is not None and path.is_file():
                paths.append(path)
                names.append(name)
                parts.append(_PART_NAMES[top.name.lower()] if given else 0)
    return paths, names, parts if given else None


def _files(folder: Path) -> Iterator[Path]:
    """All below, in a steady order, also through links to folders, which people make to choose classes."""
    seen = set()
    for root, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(root)
        folders[:] = [] if real in seen else sorted(name for name in folders if not name.startswith("."))
        if real not in seen:
            yield from (Path(root) / name for name in sorted(files))
        seen.add(real)


def _unwrapped(folder: Path) -> Path:
    """Without the folder or two that archives often have around the classes."""
    while True:
        inner = [path for path in folder.iterdir() if path.is_dir() and path.name not in ("__MACOSX", ".git")]
        if len(inner) != 1 or not any(path.is_dir() for path in inner[0].iterdir()):
            return folder
        folder = inner[0]


def _class_of(path: Path, pattern: str) -> str | None:
    """The class of a picture by its folders; None if it has none."""
    if len(path.parts) < 2:
        return None
    if pattern == "*":
        return path.parts[0]
    if not fnmatch.fnmatchcase(path.parent.name, pattern):
        return None
    before, _, after = pattern.partition("*")
    return re.sub(f"^{re.escape(before)}|{re.escape(after)}$", "", path.parent.name)


def _open(path: Path) -> Image:
    library = pillow()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of a picture that is suspiciously large, or whose notes are damaged
            with library.open(path) as image:
                image.load()
                loaded: Image = image
                return loaded
    except (OSError, SyntaxError, ValueError, Warning, library.DecompressionBombError, EOFError) as error:
        raise BadSample(f"it can't be read: {error}") from None
