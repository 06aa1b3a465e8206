"""ResNet-34 on grey pictures, after the Cantabria benchmark: `minga train fish-resnet34 --data DIR`.

DIR/fish has a folder of pictures for each class, as the large-scale fish data set (Ulucan et al., 2020) does; or DIR
itself has them, whatever they show.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from minga.data.directory import dataset_directory
from minga.data.picture_folders import PictureFolder, split_by_class
from minga.errors import DataError
from minga.evaluate import F1, ConfusionMatrix
from minga.workload import FurtherTest, Workload, correct
from minga.workloads.resnet import ResNet34

__all__ = ["fish_resnet34"]

_SIZE = (197, 148)
_PARTS = (0.85, 0.02, 0.13)  # training, validation, test
_SPLIT_SEED = 34


def _sgd(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.05)


def _in_full(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """Pictures are kept in float16, and computed with in the model's own numbers."""
    pictures, classes = batch
    return model(pictures.to(next(model.parameters()).dtype)), classes


def fish_resnet34(data: Path | None = None) -> Workload:
    """The benchmark: 85 / 2 / 13 % of each class, batch 128, SGD with 0.05, 100 epochs."""
    pictures = PictureFolder.of(_directory(data), _SIZE)
    train, validation, test = split_by_class(pictures.numbers, _PARTS, _SPLIT_SEED)
    if not test:
        raise DataError(f"{len(pictures)} pictures are too few: 13 % of each class are tested on; give more")
    further = FurtherTest(
        data=pictures.part(validation), predict=_in_full, metrics={"validation accuracy": correct}, batch=64
    )
    return Workload(
        name="fish-resnet34",
        model=partial(ResNet34, len(pictures.classes)),
        train=pictures.part(train),
        test=pictures.part(test),
        predict=_in_full,
        metrics={"accuracy": correct, "F1": F1(), "confusion": ConfusionMatrix()},
        further_tests=(further,) if validation else (),
        optimizer=_sgd,
        batch=128,
        test_batch=64,
        epochs=100,
    )


def _directory(data: Path | None) -> Path:
    """DIR/fish, or DIR itself where it has folders of pictures and none of that name."""
    if data is not None and data.is_dir() and not (data / "fish").is_dir():
        return data
    return dataset_directory("fish", data, needs=[])
