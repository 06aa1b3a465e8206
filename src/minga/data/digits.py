"""The handwritten digits that come with Minga: 1,797 pictures of 8x8 (Alpaydin & Kaynak, 1998)."""

from __future__ import annotations

import gzip
from importlib.resources import files

import numpy as np
import torch
from torch import Tensor

__all__ = ["load_digits"]


def load_digits() -> tuple[Tensor, Tensor]:
    """Pictures (1797 x 1 x 8 x 8, 0 to 1) and their classes, in the original order."""
    packed = files("minga.data").joinpath("embedded", "digits.csv.gz").read_bytes()
    rows = np.loadtxt(gzip.decompress(packed).decode().splitlines(), delimiter=",", dtype=np.float32)
    pictures = torch.from_numpy(rows[:, :-1].reshape(-1, 1, 8, 8) / 16.0)
    return pictures, torch.from_numpy(rows[:, -1].astype(np.int64))
