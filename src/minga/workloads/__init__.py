"""The built-in workloads: `minga train digits`, `minga train mnist --data DIR`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from minga.errors import unknown
from minga.workload import Workload
from minga.workloads.digits import digits
from minga.workloads.mnist import (
    fashion_mnist_cnn,
    fashion_mnist_lenet5,
    fashion_mnist_resnet,
    mnist_cnn,
    mnist_lenet5,
    mnist_lenet5_adam,
    mnist_resnet,
)
from minga.workloads.text import shakespeare

__all__ = ["WORKLOADS", "built_in"]

WORKLOADS: dict[str, Callable[[Path | None], Workload]] = {
    "digits": digits,
    "mnist": mnist_lenet5,
    "mnist-lenet5": mnist_lenet5,
    "mnist-lenet5-adam": mnist_lenet5_adam,
    "mnist-cnn": mnist_cnn,
    "mnist-resnet": mnist_resnet,
    "fashion-mnist": fashion_mnist_lenet5,
    "fashion-mnist-lenet5": fashion_mnist_lenet5,
    "fashion-mnist-cnn": fashion_mnist_cnn,
    "fashion-mnist-resnet": fashion_mnist_resnet,
    "shakespeare": shakespeare,
}


def built_in(name: str, data: Path | None) -> Workload:
    """The built-in workload of that name."""
    if name not in WORKLOADS:
        raise unknown("workload", name, WORKLOADS, "A workload of your own: file.py:name.")
    return WORKLOADS[name](data)
