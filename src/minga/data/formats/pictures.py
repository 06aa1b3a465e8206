"""A folder of pictures with a folder per class: `DIR/rose/1.jpg`, or `DIR/train/rose/1.jpg` where parts are given."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np

from minga.data.formats.base import BadSample, PictureShape, RawSample, Reader
from minga.data.formats.shaping import open_picture, shape_image
from minga.errors import DataError

__all__ = ["PICTURE_ENDINGS", "PictureReader", "class_names"]

PICTURE_ENDINGS = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
_LEFT_BEHIND = {"__MACOSX", "lost+found", "$RECYCLE.BIN", "System Volume Information"}
_PART_NAMES = {"train": 0, "training": 0, "val": 1, "valid": 1, "validation": 1, "dev": 1, "test": 2, "testing": 2}
_LOOKED_AT = 20


class PictureReader(Reader):
    """Pictures in folders that are classes, opened one at a time, when they are asked for."""

    scale = 1 / 255
    costly = True

    def __init__(self, folder: Path, picture: PictureShape, class_folders: str = "*") -> None:
        """`class_folders`: what folders of pictures are called, `*` standing for the class; others are passed over."""
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}; give one with a folder of pictures for each class")
        self._folder = folder
        self._paths, names, parts = _look_around(folder, class_folders)
        if not self._paths:
            raise DataError(
                f"{folder} has no pictures in folders named {class_folders!r}: put them into a folder per class, "
                f"such as DIR/cod/1.png and DIR/trout/2.jpg (known endings: {', '.join(sorted(PICTURE_ENDINGS))})"
            )
        self.classes = sorted(set(names))
        number = {name: index for index, name in enumerate(self.classes)}
        self.labels = np.array([number[name] for name in names], dtype=np.int64)
        self.given_parts = None if parts is None else np.array(parts, dtype=np.int8)
        self._picture = picture
        self._same_size = None if picture.width is not None else self._size_of_all()

    def __len__(self) -> int:
        return len(self._paths)

    def name_of(self, index: int) -> str:
        return self._paths[index].relative_to(self._folder).as_posix()

    def where(self, index: int) -> str:
        return str(self._paths[index])

    def read(self, index: int) -> RawSample:
        assert self.labels is not None
        image = open_picture(self._paths[index])
        if self._same_size is not None and image.size != self._same_size:
            found, wanted = (f"{width}x{height}" for width, height in (image.size, self._same_size))
            raise BadSample(f"it is {found} instead of {wanted}; give --resize {wanted}")
        return {"inputs": shape_image(image, self._picture), "targets": self.labels[index]}

    def _size_of_all(self) -> tuple[int, int]:
        """Without a size that is asked for, all must have that of the first."""
        sizes: set[tuple[int, int]] = set()
        for path in self._paths[:: max(1, len(self._paths) // _LOOKED_AT)]:
            try:
                sizes.add(open_picture(path).size)
            except BadSample:
                continue
        if len(sizes) != 1:
            found = ", ".join(f"{width}x{height}" for width, height in sorted(sizes)[:3]) or "none that can be read"
            raise DataError(f"the pictures in {self._folder} are of several sizes ({found}, ...); give --resize WxH")
        return sizes.pop()


def class_names(folder: Path, class_folders: str = "*") -> set[str]:
    """The classes that there are pictures of; none where the folder is no such one."""
    return set(_look_around(folder, class_folders)[1])


def _look_around(folder: Path, pattern: str) -> tuple[list[Path], list[str], list[int] | None]:
    """Paths of pictures, their classes, and their parts where folders say them."""
    folder, inner = _unwrapped(folder)
    given = _are_parts(folder, inner)
    found: list[tuple[str, Path, int]] = []
    for top in inner if given else [folder]:
        for path in _pictures(top):
            name = _class_of(path.relative_to(top), pattern)
            if name is not None and path.is_file():
                found.append((name, path, _PART_NAMES[top.name.lower()] if given else 0))
    # By class, then by path: splits are drawn by places, and must be the same wherever the files were copied to.
    found.sort()
    parts = [part for *_, part in found] if given else None
    return [path for _, path, _ in found], [name for name, *_ in found], parts


def _are_parts(folder: Path, inner: list[Path]) -> bool:
    """Whether these are the parts of a data set; `DataError` where only some are."""
    odd = [path for path in inner if path.name.lower() not in _PART_NAMES]
    # A class may well be called "train": then its pictures lie in it, and not in folders inside.
    parts = [path for path in inner if path not in odd and _folders(path)]
    if odd and parts:
        raise DataError(
            f"{folder} has folders for parts ({', '.join(path.name for path in parts)}), and beside them "
            f"{odd[0].name!r}, which is none: move it elsewhere, or call it one of {', '.join(_PART_NAMES)}"
        )
    return bool(inner) and not odd


def _pictures(folder: Path) -> Iterator[Path]:
    """All below, in a steady order, also through links to folders, which people make to choose classes."""
    seen = set()
    for root, folders, files in os.walk(folder, followlinks=True, onerror=_refuse):
        real = os.path.realpath(root)
        folders[:] = [] if real in seen else sorted(filter(_visible, folders))
        if real not in seen:
            names = (name for name in sorted(files) if Path(name).suffix.lower() in PICTURE_ENDINGS)
            yield from (Path(root) / name for name in names if _visible(name))
        seen.add(real)


def _folders(folder: Path) -> list[Path]:
    """Those inside that have pictures, however deep; notes or a prepared set beside them are no classes."""
    try:
        inner = sorted(path for path in folder.iterdir() if _visible(path.name) and path.is_dir())
    except OSError as error:
        _refuse(error)
    return [path for path in inner if next(_pictures(path), None) is not None]


def _refuse(error: OSError) -> NoReturn:
    raise DataError(
        f"{error.filename} can't be read ({error.strerror}); make it readable, or move it out of the data set"
    ) from None


def _visible(name: str) -> bool:
    """Whether people put it there: what systems and programs leave behind is passed over."""
    return not name.startswith(".") and name not in _LEFT_BEHIND


def _unwrapped(folder: Path) -> tuple[Path, list[Path]]:
    """Without the folder or two that archives often have around the classes; and the folders inside."""
    inner = _folders(folder)
    while len(inner) == 1 and (deeper := _folders(inner[0])):
        folder, inner = inner[0], deeper
    return folder, inner


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
