"""ResNet-34 on grey pictures, after the Cantabria benchmark: `minga train fish-resnet34 --data DIR`.

DIR/fish has a folder of pictures for each class; or DIR/fish/pictures has the large-scale fish data set (Ulucan et al.,
2020) as `minga data fetch fish` leaves it, of which the silhouettes are taken; or DIR itself has folders of pictures,
whatever they show; or DIR is what `minga data prepare` has made of pictures, which is read much faster.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from minga.data.directory import data_directory
from minga.data.formats.base import PARTS, PictureShape
from minga.data.formats.dataset import ReaderDataset
from minga.data.formats.pictures import PictureReader
from minga.data.prepared.dataset import PreparedDataset
from minga.data.prepared.manifest import PreparedManifest, is_prepared
from minga.data.sources import known_dataset
from minga.data.split import drawn_by_class
from minga.errors import DataError
from minga.metrics import F1, ConfusionMatrix
from minga.runs.workload import FurtherTest, Workload, correct
from minga.workloads.models import ResNet34

__all__ = ["fish_resnet34"]

_SHAPE = PictureShape(width=197, height=148, grey=True)
_SHARES = (0.85, 0.02, 0.13)  # training, validation, test
_SPLIT_SEED = 34

Model = Callable[[], nn.Module]
Pictures = ReaderDataset | PreparedDataset
Sets = tuple[Pictures, Pictures | None, Pictures]
"""To train on, to validate with, to test on."""


def _in_full(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """Pictures are kept in float16, and computed with in the model's own numbers."""
    pictures, classes = batch
    return model(pictures.to(next(model.parameters()).dtype)), classes


def fish_resnet34(data: Path | None = None) -> Workload:
    """ResNet-34 on grey pictures of 197x148, fish or any folder of pictures for each class (the Cantabria benchmark).

    Its recipe: 85 / 2 / 13 % of each class (or the parts that there are folders for), batch 128, SGD with 0.05, 100
    epochs. A set of pictures that was prepared is taken as it is, in its own size and parts.
    """
    directory = data_directory(data)
    if is_prepared(directory):
        model, (train, validation, test) = _prepared(directory)
    else:
        model, (train, validation, test) = _in_folders(data)
    further = (
        (FurtherTest(data=validation, predict=_in_full, metrics={"validation accuracy": correct}, batch=64),)
        if validation is not None
        else ()
    )
    return Workload(
        name="fish-resnet34",
        model=model,
        train=train,
        test=test,
        predict=_in_full,
        metrics={"accuracy": correct, "F1": F1(), "confusion": ConfusionMatrix()},
        further_tests=further,
        optimizer=partial(torch.optim.SGD, lr=0.05),
        batch=128,
        test_batch=64,
        epochs=100,
        classes=tuple(train.classes),
    )


def _prepared(folder: Path) -> tuple[Model, Sets]:
    manifest = PreparedManifest.load(folder)
    shape = manifest.fields["inputs"].shape
    if not manifest.classes or len(shape) != 3:
        raise DataError(
            f"{folder} is a prepared set of inputs {' x '.join(map(str, shape))} with {len(manifest.classes)} classes, "
            "not of pictures of classes; prepare a folder of pictures: minga data prepare DIR --resize 197x148 --grey"
        )
    found = {name: PreparedDataset(folder, name) for name, part in manifest.parts.items() if part.samples}
    if "train" not in found or len(found) < 2:
        raise DataError(f"{folder} lacks a part to train or to test on; prepare it with --split, such as 85,2,13")
    tested = found.get("test") or found["validation"]
    validated = found["validation"] if {"test", "validation"} <= found.keys() else None
    return partial(ResNet34, len(manifest.classes), channels=shape[0]), (found["train"], validated, tested)


def _in_folders(data: Path | None) -> tuple[Model, Sets]:
    pictures = _pictures(data)
    if len(pictures.classes) < 2:
        raise DataError(
            f"there are pictures of {len(pictures.classes)} class ({pictures.classes[0]!r}); there should be a folder "
            "for each of two or more classes: DIR/cod/1.png, DIR/trout/2.jpg"
        )
    train, validation, test = (ReaderDataset(pictures, places, dtype="float16") for places in _parts(pictures))
    if not len(test):
        raise DataError(f"{len(pictures)} pictures are too few: 13 % of each class are tested on; give more")
    return partial(ResNet34, len(pictures.classes)), (train, validation if len(validation) else None, test)


def _parts(pictures: PictureReader) -> list[list[int]]:
    """Samples to train on, to validate with and to test on: as folders say, or drawn from each class."""
    train, validation, test = (pictures.part(name).tolist() for name in PARTS)
    if train and test:
        return [train, validation, test]
    if train and validation:  # many data sets have these two alone
        return [train, [], validation]
    assert pictures.labels is not None
    drawn = drawn_by_class(pictures.labels, _SHARES, _SPLIT_SEED)
    return [np.flatnonzero(drawn == part).tolist() for part in range(len(PARTS))]


def _pictures(data: Path | None) -> PictureReader:
    directory = data_directory(data)
    fish = known_dataset("fish")
    published = directory / fish.folder / "pictures"
    if published.is_dir():
        return PictureReader(published, _SHAPE, fish.class_folders)
    if (directory / fish.folder).is_dir():
        return PictureReader(directory / fish.folder, _SHAPE)
    how = "fetch the fish (minga data fetch fish), or give one with a folder of pictures for each class: --data DIR"
    if data is None or not directory.is_dir():
        raise DataError(f"there is no {directory / fish.folder}: {how}")
    try:
        return PictureReader(directory, _SHAPE)
    except DataError as error:
        raise DataError(f"{error}. {how[0].upper()}{how[1:]}") from None
