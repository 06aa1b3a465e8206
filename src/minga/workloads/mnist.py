"""MNIST and Fashion-MNIST, read in their original format, with LeNet-5, Nielsen's network and small ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import TensorDataset

from minga.data.directory import dataset_directory
from minga.data.formats.arrays import IDX_FILES, read_idx_part
from minga.errors import DataError
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


def _sgd(parameters: Iterable[nn.Parameter], rate: float, momentum: float = 0.9) -> Optimizer:
    return torch.optim.SGD(parameters, lr=rate, momentum=momentum)


def _adam(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return torch.optim.Adam(parameters, lr=0.01)


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
    mean, deviation = _SCALES[dataset]
    scaled: Tensor = (pictures.float() / 255.0 - mean) / deviation
    return TensorDataset(scaled, classes)


def _workload(
    data: Path | None, dataset: str, model: Callable[[], nn.Module], *, suffix: str, rate: float, epochs: int
) -> Workload:
    directory = dataset_directory(dataset, data, needs=[file for files in IDX_FILES.values() for file in files])
    return Workload(
        name=f"{dataset}-{suffix}",
        model=model,
        train=_split(dataset, directory, "train"),
        test=_split(dataset, directory, "test"),
        optimizer=partial(_sgd, rate=rate),
        batch=64,
        epochs=epochs,
    )


def mnist_lenet5(data: Path | None = None) -> Workload:
    """LeNet-5 on handwritten digits of 28x28: SGD with momentum and a rate that falls, 10 epochs."""
    plain = _workload(data, "mnist", LeNet5, suffix="lenet5", rate=0.02, epochs=10)
    return dataclasses.replace(plain, schedule=warm_up_and_fall)


def mnist_lenet5_adam(data: Path | None = None) -> Workload:
    """LeNet-5 by the recipe of the Buenos Aires thesis: Adam with 0.01, batch 64."""
    plain = _workload(data, "mnist", LeNet5, suffix="lenet5-adam", rate=0.01, epochs=5)
    return dataclasses.replace(plain, optimizer=_adam)


def mnist_nielsen(data: Path | None = None) -> Workload:
    """The network of Nielsen's book, by the second recipe of the Buenos Aires thesis: plain SGD with 0.1, batch 10.

    In the thesis it took 60 epochs at a constant rate; here 20, with a rate that falls.
    """
    plain = _workload(data, "mnist", NielsenNet, suffix="nielsen", rate=0.1, epochs=20)
    plain_sgd = partial(_sgd, rate=0.1, momentum=0.0)
    return dataclasses.replace(plain, optimizer=plain_sgd, schedule=warm_up_and_fall, batch=10)


def mnist_mlp(data: Path | None = None) -> Workload:
    """Three dense layers on handwritten digits of 28x28."""
    plain = _workload(data, "mnist", MultilayerPerceptron, suffix="mlp", rate=0.05, epochs=10)
    return dataclasses.replace(plain, schedule=warm_up_and_fall)


def _cnn(data: Path | None, dataset: str) -> Workload:
    plain = _workload(data, dataset, SmallConvNet, suffix="cnn", rate=0.05, epochs=5)
    return dataclasses.replace(plain, schedule=warm_up_and_fall)


def mnist_cnn(data: Path | None = None) -> Workload:
    """Two convolutions and two dense layers, 421,642 parameters."""
    return _cnn(data, "mnist")


def fashion_mnist_cnn(data: Path | None = None) -> Workload:
    """Two convolutions and two dense layers on pictures of clothes."""
    return _cnn(data, "fashion-mnist")


def mnist_resnet(data: Path | None = None) -> Workload:
    """A small residual network with batch norm."""
    return _workload(data, "mnist", SmallResNet, suffix="resnet", rate=0.05, epochs=3)


def fashion_mnist_lenet5(data: Path | None = None) -> Workload:
    """LeNet-5 on pictures of clothes."""
    return _workload(data, "fashion-mnist", LeNet5, suffix="lenet5", rate=0.01, epochs=5)


def fashion_mnist_resnet(data: Path | None = None) -> Workload:
    """A small residual network with batch norm on pictures of clothes."""
    return _workload(data, "fashion-mnist", SmallResNet, suffix="resnet", rate=0.05, epochs=3)
