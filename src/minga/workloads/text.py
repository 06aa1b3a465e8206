"""A language model that tells the next character, on the plays of Shakespeare: `minga train shakespeare --data DIR`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer
from torch.utils.data import TensorDataset

from minga.data.directory import dataset_directory
from minga.data.text import as_numbers, pieces, read_text
from minga.errors import DataError
from minga.workload import Workload
from minga.workloads.models import SmallTransformer
from minga.workloads.schedules import warm_up_and_fall

__all__ = ["shakespeare"]

_FILE = "tinyshakespeare.txt"
_CONTEXT = 64
_TRAINED_PART = 0.9


def _adamw(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return torch.optim.AdamW(parameters, lr=0.003, betas=(0.9, 0.99), weight_decay=0.1)


def _loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean over all characters: since pieces are equally long, also the mean over samples."""
    return cross_entropy(outputs.flatten(0, 1), targets.flatten())


def _part_correct(outputs: Tensor, targets: Tensor) -> Tensor:
    """For each piece, the part of its characters that was told right."""
    return (outputs.argmax(dim=-1) == targets).double().mean(dim=1)


def shakespeare(data: Path | None = None) -> Workload:
    """Trained on the first nine tenths of the text, tested on the last; accuracy is that of the next character."""
    path = dataset_directory("text", data, needs=[_FILE]) / _FILE
    numbers, characters = as_numbers(read_text(path))
    cut = int(_TRAINED_PART * len(numbers))
    train, test = pieces(numbers[:cut], _CONTEXT), pieces(numbers[cut:], _CONTEXT)
    if not len(test[0]):
        raise DataError(
            f"{path} has {len(numbers):,} characters, of which the last tenth does not fill a piece of {_CONTEXT}; "
            "fetch the file again"
        )
    return Workload(
        name="shakespeare",
        model=partial(SmallTransformer, len(characters), context=_CONTEXT),
        train=TensorDataset(*train),
        test=TensorDataset(*test),
        loss=_loss,
        metrics={"accuracy": _part_correct},
        optimizer=_adamw,
        schedule=warm_up_and_fall,
        batch=32,
        epochs=3,
    )
