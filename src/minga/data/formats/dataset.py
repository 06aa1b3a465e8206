"""Samples in their original form as a data set of torch, for training without preparing them.

pictures = ReaderDataset(PictureReader(Path("fish"), PictureShape(width=197, height=148, grey=True)), dtype="float16")
picture, number = pictures[0]                                   # 1 x 148 x 197, 0 to 1
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from minga.data.formats.base import BadSample, Reader, kept_form
from minga.errors import DataError

__all__ = ["ReaderDataset"]


class ReaderDataset(Dataset[tuple[Tensor, int]]):
    """Samples of a reader, with the numbers of their classes, read when they are asked for."""

    def __init__(self, reader: Reader, indices: Sequence[int] | None = None, *, dtype: str) -> None:
        """All samples, or some; `dtype`: of inputs, such as "float16", where pictures are 0 to 1."""
        self._reader = reader
        self._indices = range(len(reader)) if indices is None else indices
        self._dtype = dtype

    @property
    def classes(self) -> Sequence[str]:
        """By number."""
        return self._reader.classes

    @property
    def names(self) -> list[str]:
        """What people call the samples."""
        return [self._reader.name_of(index) for index in self._indices]

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        index = self._indices[place]
        try:
            sample = self._reader.read(index)
        except BadSample as bad:
            raise DataError(
                f"{self._reader.where(index)}: {bad}; remove it, fetch it again, or train on what "
                "minga data prepare makes of the data set, which leaves out and lists all that can't be used"
            ) from None
        inputs = np.ascontiguousarray(kept_form("inputs", sample["inputs"], self._dtype, self._reader.scale))
        return torch.from_numpy(inputs), int(sample["targets"])
