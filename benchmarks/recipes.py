"""The workloads of `time_to_accuracy.py`: built-in ones on a part of their data, so that one node needs a minute.

minga train benchmarks/recipes.py:fashion_mnist --data DIR --epochs 5 --total-batch 128
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import TensorDataset

from minga import Workload
from minga.workloads import built_in


def _first(name: str, data: Path | None, trained: int, tested: int | None = None) -> Workload:
    """A built-in workload with the first `trained` samples of its training set."""
    whole = built_in(name, data)
    assert isinstance(whole.train, TensorDataset) and isinstance(whole.test, TensorDataset)
    return dataclasses.replace(
        whole,
        train=TensorDataset(*(tensor[:trained] for tensor in whole.train.tensors)),
        test=TensorDataset(*(tensor[:tested] for tensor in whole.test.tensors)),
    )


def _twice_the_rate(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def fashion_mnist(data: Path | None = None) -> Workload:
    # Of 128 samples each of two nodes has 64, which a core computes as well as 128: less would not be compared fairly.
    return dataclasses.replace(_first("fashion-mnist-cnn", data, 12_800), optimizer=_twice_the_rate)


def shakespeare(data: Path | None = None) -> Workload:
    # Nearly all of the text, few epochs: of a part of it the model would soon know each line by heart.
    return _first("shakespeare", data, 15_360)


def fashion_mnist_quick(data: Path | None = None) -> Workload:
    return dataclasses.replace(_first("fashion-mnist-cnn", data, 2_560, 2_000), optimizer=_twice_the_rate)


def shakespeare_quick(data: Path | None = None) -> Workload:
    # With fewer steps every model says nothing but spaces: all contestants then have exactly the same accuracy.
    return _first("shakespeare", data, 2_048, 512)


def cifar10(data: Path | None = None) -> Workload:
    return _first("cifar10-vgg", data, 2_000, 2_000)
