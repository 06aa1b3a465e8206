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
from minga.data.readers.pictures import PICTURE_ENDINGS, look_around
from minga.data.readers.shaping import in_8_bits, upright
from minga.errors import DataError

__all__ = ["PictureFolder", "split_by_class"]


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

    given_parts: Sequence[int] | None = None
    """Of each file, where folders say it: 0 to train on, 1 to validate with, 2 to test on."""

    @classmethod
    def of(cls, directory: Path, size: tuple[int, int], *, named: str = "*") -> PictureFolder:
        """All pictures below the folders of a directory, however deep, or below folders `named` like a pattern alone.

        Folders that an archive has around those of the classes are passed over; `train` and `test` around them are the
        parts of the data set, no classes.
        """
        if not directory.is_dir():
            raise DataError(f"there is no folder {directory}; give one with a folder of pictures for each class")
        paths, names, parts = look_around(directory, named)
        classes = sorted(set(names))
        if len(classes) < 2:
            called = "" if named == "*" else f" in folders called {named!r}"
            raise DataError(
                f"{directory} has pictures ({', '.join(sorted(PICTURE_ENDINGS))}) of {len(classes)} classes{called}; "
                "there should be a folder for each of two or more classes: DIR/cod/1.png, DIR/trout/2.jpg"
            )
        # By class, then by path: the split is drawn by places, and must be the same wherever the files were copied to.
        order = sorted(range(len(paths)), key=lambda at: (names[at], paths[at]))
        number = {name: at for at, name in enumerate(classes)}
        given = None if parts is None else [parts[at] for at in order]
        return cls([paths[at] for at in order], [number[names[at]] for at in order], classes, size, given)

    def part(self, places: Sequence[int]) -> PictureFolder:
        """Some of them."""
        files, numbers = [self.files[at] for at in places], [self.numbers[at] for at in places]
        return PictureFolder(files, numbers, self.classes, self.size)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        return read_grey(self.files[place], self.size), self.numbers[place]


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
        raise DataError(
            f"{path} can't be read as a picture ({error}); remove it, fetch it again, or train on what "
            "minga data prepare makes of the folder, which leaves out and lists all that can't be used"
        ) from error
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
