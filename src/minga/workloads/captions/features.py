"""Photographs as an encoder sees them, kept in a file: `names` and `feats` in an .npz.

features = Features.read(find_features(Path("data/flickr8k")))
features.of(["1000268201_693b08cb0e.jpg"])                  # 1 x 1280
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from minga.data.formats.captions import read_features
from minga.errors import DataError

__all__ = ["Features"]


@dataclass(frozen=True)
class Features:
    """A row for each photograph's name."""

    names: list[str]
    vectors: Tensor

    @classmethod
    def read(cls, path: Path) -> Features:
        """Those of a file."""
        names, vectors = read_features(path)
        return cls(names, torch.from_numpy(vectors))

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
