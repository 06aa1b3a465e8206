"""The embedded default: handwritten digits of 8x8 and a small convolutional network."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import TensorDataset

from minga.data.digits import load_digits
from minga.runs.workload import Workload
from minga.workloads.models import DigitsNet

__all__ = ["digits"]


def _adam(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return torch.optim.Adam(parameters, lr=0.003)


def _full_then_falling(progress: float) -> float:
    """The full learning rate for the first half, then down to zero: the last steps settle what was learned."""
    return min(1.0, 2.0 - 2.0 * progress)


def digits(data: Path | None = None) -> Workload:
    """A small convolutional network on handwritten digits of 8x8.

    1,438 pictures to learn from, 359 to be tested on: every fifth, so that all writers are in both.
    """
    pictures, classes = load_digits()
    tested = torch.arange(len(pictures)) % 5 == 4
    return Workload(
        name="digits",
        model=DigitsNet,
        train=TensorDataset(pictures[~tested], classes[~tested]),
        test=TensorDataset(pictures[tested], classes[tested]),
        optimizer=_adam,
        schedule=_full_then_falling,
        batch=16,
        epochs=20,
    )
