"""MNIST and Fashion-MNIST, read in their original format, with LeNet-5, Nielsen's network and small ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer
from torch.utils.data import TensorDataset

from minga.data.directory import dataset_directory
from minga.data.formats.arrays import IDX_FILES, read_idx_part
from minga.data.sources import known_dataset
from minga.errors import DataError
from minga.runs.answering import Preparation, ink_is_bright
from minga.runs.workload import Workload
from minga.workloads.models import LeNet5, MultilayerPerceptron, NielsenNet, SmallConvNet, SmallResNet
from minga.workloads.schedules import warm_up_and_fall

__all__ = [
    "fashion_mnist_cnn",
    "fashion_mnist_lenet5",
    "fashion_mnist_resnet",
    "mnist_cnn",
    "mnist_lenet5",
    "mnist_lenet5_adam",
    "mnist_mlp",
    "mnist_nielsen",
    "mnist_resnet",
]

# Mean and standard deviation of the training pictures, 0 to 1.
_SCALES = {"mnist": (0.1307, 0.3081), "fashion-mnist": (0.2860, 0.3530)}
_SIDE, _CLASSES = 28, 10


def _split(dataset: str, directory: Path, split: str) -> TensorDataset:
    pictures, classes = map(torch.from_numpy, read_idx_part(directory, split))
    height, width = pictures.shape[2:]
    highest = int(classes.max()) if len(classes) else -1
    # Other data sets come in files of the same names.
    if (height, width) != (_SIDE, _SIDE) or not 0 <= highest < _CLASSES:
        told = f"the highest class being {highest}" if len(classes) else "without classes"
        raise DataError(
            f"{directory} has {len(pictures):,} {split} pictures of {width}x{height}, {told}; this workload needs "
            f"pictures of {_SIDE}x{_SIDE}, of {_CLASSES} classes from 0 on. Fetch the data set again (minga data fetch "
            f"{dataset}), or write a workload for yours: file.py:name"
        )
    return TensorDataset(_scaled(pictures.float() / 255.0, dataset), classes)


def _scaled(pictures: Tensor, dataset: str) -> Tensor:
    mean, deviation = _SCALES[dataset]
    return (pictures - mean) / deviation


def _workload(
    data: Path | None,
    dataset: str,
    suffix: str,
    model: Callable[[], nn.Module],
    optimizer: Callable[..., Optimizer],
    *,
    epochs: int,
    schedule: Callable[[float], float] | None = None,
    batch: int = 64,
) -> Workload:
    directory = dataset_directory(dataset, data, needs=[file for files in IDX_FILES.values() for file in files])
    return Workload(
        name=f"{dataset}-{suffix}",
        model=model,
        train=_split(dataset, directory, "train"),
        test=_split(dataset, directory, "test"),
        optimizer=optimizer,
        schedule=schedule,
        batch=batch,
        epochs=epochs,
        prepare=Preparation(picture=lambda picture: _scaled(ink_is_bright(picture), dataset)),
        classes=tuple(known_dataset(dataset).classes) or tuple("0123456789"),
    )


def mnist_lenet5(data: Path | None = None) -> Workload:
    """LeNet-5 on handwritten digits of 28x28: SGD with momentum and a rate that falls, 10 epochs."""
    sgd = partial(SGD, lr=0.02, momentum=0.9)
    return _workload(data, "mnist", "lenet5", LeNet5, sgd, schedule=warm_up_and_fall, epochs=10)


def mnist_lenet5_adam(data: Path | None = None) -> Workload:
    """LeNet-5 by the recipe of the Buenos Aires thesis: Adam with 0.01, batch 64."""
    return _workload(data, "mnist", "lenet5-adam", LeNet5, partial(Adam, lr=0.01), epochs=5)


def mnist_nielsen(data: Path | None = None) -> Workload:
    """The network of Nielsen's book, by the second recipe of the Buenos Aires thesis: plain SGD with 0.1, batch 10.

    In the thesis it took 60 epochs at a constant rate; here 20, with a rate that falls.
    """
    sgd = partial(SGD, lr=0.1)
    return _workload(data, "mnist", "nielsen", NielsenNet, sgd, schedule=warm_up_and_fall, batch=10, epochs=20)


def mnist_mlp(data: Path | None = None) -> Workload:
    """Three dense layers on handwritten digits of 28x28."""
    sgd = partial(SGD, lr=0.05, momentum=0.9)
    return _workload(data, "mnist", "mlp", MultilayerPerceptron, sgd, schedule=warm_up_and_fall, epochs=10)


def mnist_cnn(data: Path | None = None, dataset: str = "mnist") -> Workload:
    """Two convolutions and two dense layers, 421,642 parameters."""
    sgd = partial(SGD, lr=0.05, momentum=0.9)
    return _workload(data, dataset, "cnn", SmallConvNet, sgd, schedule=warm_up_and_fall, epochs=5)


def fashion_mnist_cnn(data: Path | None = None) -> Workload:
    """Two convolutions and two dense layers on pictures of clothes."""
    return mnist_cnn(data, "fashion-mnist")


def mnist_resnet(data: Path | None = None, dataset: str = "mnist") -> Workload:
    """A small residual network with batch norm."""
    return _workload(data, dataset, "resnet", SmallResNet, partial(SGD, lr=0.05, momentum=0.9), epochs=3)


def fashion_mnist_lenet5(data: Path | None = None) -> Workload:
    """LeNet-5 on pictures of clothes."""
    return _workload(data, "fashion-mnist", "lenet5", LeNet5, partial(SGD, lr=0.01, momentum=0.9), epochs=5)


def fashion_mnist_resnet(data: Path | None = None) -> Workload:
    """A small residual network with batch norm on pictures of clothes."""
    return mnist_resnet(data, "fashion-mnist")
