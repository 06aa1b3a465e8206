"""The embedded default: handwritten digits of 8x8 and a small convolutional network."""

from __future__ import annotations

import gzip
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from minga.runs.answering import Preparation, ink_is_bright
from minga.runs.workload import Workload
from minga.workloads.models import DigitsNet

__all__ = ["digits", "every_fifth", "load_digits"]


def load_digits() -> tuple[Tensor, Tensor]:
    """1,797 pictures (x 1 x 8 x 8, 0 to 1) and their classes, in the original order (Alpaydin & Kaynak, 1998)."""
    packed = files("minga.data").joinpath("embedded", "digits.csv.gz").read_bytes()
    rows = np.loadtxt(gzip.decompress(packed).decode().splitlines(), delimiter=",", dtype=np.float32)
    pictures = torch.from_numpy(rows[:, :-1].reshape(-1, 1, 8, 8) / 16.0)
    return pictures, torch.from_numpy(rows[:, -1].astype(np.int64))


def every_fifth(*tensors: Tensor) -> tuple[TensorDataset, TensorDataset]:
    """Samples to train on, and every fifth to test on: so all who wrote these digits are in both."""
    tested = torch.arange(len(tensors[0])) % 5 == 4
    return TensorDataset(*(each[~tested] for each in tensors)), TensorDataset(*(each[tested] for each in tensors))


def _full_then_falling(progress: float) -> float:
    """The full learning rate for the first half, then down to zero: the last steps settle what was learned."""
    return min(1.0, 2.0 - 2.0 * progress)


def digits(data: Path | None = None) -> Workload:
    """A small convolutional network on handwritten digits of 8x8.

    1,438 pictures to learn from, 359 to be tested on.
    """
    train, test = every_fifth(*load_digits())
    return Workload(
        name="digits",
        model=DigitsNet,
        train=train,
        test=test,
        optimizer=partial(torch.optim.Adam, lr=0.003),
        schedule=_full_then_falling,
        batch=16,
        epochs=20,
        prepare=Preparation(picture=ink_is_bright),
        classes=tuple("0123456789"),
    )
