"""CIFAR-10 with the network of the Kubeflow thesis: `minga train cifar10-vgg --data DIR`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from minga.data.directory import dataset_directory
from minga.data.formats.arrays import CIFAR10_FILES, read_cifar10_part
from minga.data.sources import known_dataset
from minga.metrics import ConfusionMatrix
from minga.runs.workload import Workload, correct
from minga.workloads.schedules import warm_up_and_fall

__all__ = ["VggLike", "cifar10_vgg"]

# Mean and standard deviation of the training pictures' colours, 0 to 1.
_MEAN = (0.4914, 0.4822, 0.4465)
_DEVIATION = (0.2470, 0.2435, 0.2616)


class VggLike(nn.Sequential):
    """The thesis' network for pictures of 32x32 in colour, layer for layer: 29,587,082 parameters."""

    def __init__(self) -> None:
        super().__init__(
            *_convolutions(3, 128, 128, 128),
            nn.BatchNorm2d(128),
            nn.MaxPool2d(2),
            *_convolutions(128, 256, 256, 256),
            nn.BatchNorm2d(256),
            nn.MaxPool2d(2),
            *_convolutions(256, 256, 256, 384),
            nn.Dropout(0.5),
            nn.Flatten(),
            nn.BatchNorm1d(384 * 8 * 8),
            nn.Dropout(0.5),
            nn.Linear(384 * 8 * 8, 1024),
            nn.ReLU(),
            nn.Linear(1024, 512),
            nn.ReLU(),
            nn.BatchNorm1d(512),
            nn.Dropout(0.5),
            nn.Linear(512, 10),
        )


def _convolutions(inputs: int, *widths: int) -> list[nn.Module]:
    """3x3 with ReLU, pictures staying as large as they are."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
        inputs = width
    return layers


def _scaled(model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
    """Pictures stay bytes until they are used: a quarter of the memory."""
    pictures, classes = batch
    mean, deviation = (torch.tensor(each, device=pictures.device).view(3, 1, 1) for each in (_MEAN, _DEVIATION))
    return model((pictures.float() / 255.0 - mean) / deviation), classes


def cifar10_vgg(data: Path | None = None) -> Workload:
    """The network of the Kubeflow thesis, like VGG, 29.6 million parameters.

    Its recipe: batch 64, SGD with momentum, the rate searched between 0.001 and 1.
    """
    directory = dataset_directory("cifar10", data, needs=[file for files in CIFAR10_FILES.values() for file in files])
    return Workload(
        name="cifar10-vgg",
        model=VggLike,
        train=TensorDataset(*map(torch.from_numpy, read_cifar10_part(directory, "train"))),
        test=TensorDataset(*map(torch.from_numpy, read_cifar10_part(directory, "test"))),
        predict=_scaled,
        metrics={"accuracy": correct, "confusion": ConfusionMatrix()},
        optimizer=partial(torch.optim.SGD, lr=0.01, momentum=0.9),
        schedule=warm_up_and_fall,
        batch=64,
        epochs=30,
        classes=tuple(known_dataset("cifar10").classes),
    )
