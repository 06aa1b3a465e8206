"""Pictures in folders, one for each class, read when they are asked for: DIR/cod/1.png, DIR/trout/2.jpg.

folder = PictureFolder.of(Path("fish"), size=(197, 148))
picture, number = folder[0]                         # 1 x 148 x 197, 0 to 1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from minga.data.readers.base import BadSample
from minga.data.readers.shaping import in_8_bits, upright
from minga.errors import DataError

__all__ = ["PictureFolder", "split_by_class"]

_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")


@dataclass(frozen=True, eq=False)
class PictureFolder(Dataset[tuple[Tensor, int]]):
    """Grey pictures of one size, with the numbers of their classes."""

    files: Sequence[Path]
    numbers: Sequence[int]
    """The class of each file."""

    classes: Sequence[str]
    """By number: the folders' names, in the order of the alphabet."""

    size: tuple[int, int]
    """Width and height that pictures are scaled to."""

    @classmethod
    def of(cls, directory: Path, size: tuple[int, int], *, named: str = "*") -> PictureFolder:
        """All pictures below the folders of a directory, however deep, or below folders `named` like a pattern alone.

        Folders that an archive has around those of the classes are passed over.
        """
        found = _by_class(directory, named)
        if len(found) < 2:
            called = "" if named == "*" else f" in folders called {named!r}"
            raise DataError(
                f"{directory} has pictures ({', '.join(_ENDINGS)}) of {len(found)} classes{called}; there should be a "
                "folder for each of two or more classes: DIR/cod/1.png, DIR/trout/2.jpg"
            )
        files = [path for paths in found.values() for path in paths]
        numbers = [number for number, paths in enumerate(found.values()) for _ in paths]
        return cls(files, numbers, list(found), size)

    def part(self, places: Sequence[int]) -> PictureFolder:
        """Some of them."""
        files, numbers = [self.files[at] for at in places], [self.numbers[at] for at in places]
        return PictureFolder(files, numbers, self.classes, self.size)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        return read_grey(self.files[place], self.size), self.numbers[place]


def _by_class(directory: Path, named: str) -> dict[str, list[Path]]:
    """Files by the names of their classes, both in the order of the alphabet."""
    if not directory.is_dir():
        raise DataError(f"there is no folder {directory}; give one with a folder of pictures for each class")
    tops = _folders(directory)
    while len(tops) == 1 and _folders(tops[0]):  # of an archive that was unpacked
        tops = _folders(tops[0])
    if named == "*":
        found = {folder.name: _pictures(folder) for folder in tops}
    else:
        before, _, after = named.partition("*")
        matching = [path for top in tops for path in sorted(top.rglob(named)) if path.is_dir()]
        found = {folder.name.removeprefix(before).removesuffix(after): _pictures(folder) for folder in matching}
    return {name: found[name] for name in sorted(found) if found[name]}


def _folders(directory: Path) -> list[Path]:
    """Those inside, without what systems leave behind."""
    return sorted(path for path in directory.iterdir() if path.is_dir() and not path.name.startswith((".", "__MACOSX")))


def _pictures(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.suffix.lower() in _ENDINGS and not path.name.startswith(".")
    )


def read_grey(path: Path, size: tuple[int, int]) -> Tensor:
    """A picture as 1 x height x width, 0 to 1, in float16: half the memory, and more than 8 bits need."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("pictures are read by Pillow, which is not installed: pip install 'minga[images]'") from error
    try:
        with Image.open(path) as picture:
            grey = in_8_bits(upright(picture)).convert("L").resize(size, Image.Resampling.BILINEAR)
            values = np.asarray(grey, dtype=np.float32) / 255.0
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError, BadSample) as error:
        raise DataError(f"{path} can't be read as a picture ({error}); remove it, or fetch it again") from error
    return torch.from_numpy(values).half().unsqueeze(0)


def split_by_class(numbers: Sequence[int], parts: Sequence[float], seed: int) -> list[list[int]]:
    """Places for each part, every class divided in the same proportions (rounded), the last part taking the rest."""
    generator = torch.Generator().manual_seed(seed)
    of = torch.tensor(numbers)
    divided: list[list[int]] = [[] for _ in parts]
    for number in sorted(set(numbers)):
        places = (of == number).nonzero().flatten()
        places = places[torch.randperm(len(places), generator=generator)]
        start = 0
        for index, share in enumerate(parts):
            last = index == len(parts) - 1
            stop = len(places) if last else start + round(share * len(places))
            divided[index] += places[start:stop].tolist()
            start = stop
    return [sorted(places) for places in divided]
