"""The built-in workloads: `minga train digits`, `minga train mnist --data DIR`; `minga workloads` lists them.

The first line of each function's docstring is what that list says of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from minga.errors import unknown
from minga.runs.workload import Workload
from minga.workloads.captions import flickr8k_captions
from minga.workloads.cifar10 import cifar10_vgg
from minga.workloads.digits import digits
from minga.workloads.fish import fish_resnet34
from minga.workloads.mnist import (
    fashion_mnist_cnn,
    fashion_mnist_lenet5,
    fashion_mnist_resnet,
    mnist_cnn,
    mnist_lenet5,
    mnist_lenet5_adam,
    mnist_mlp,
    mnist_nielsen,
    mnist_resnet,
)
from minga.workloads.tasks import counting, digits_autoencoder, digits_labels, friedman
from minga.workloads.text import shakespeare, shakespeare_gpt

__all__ = ["WORKLOADS", "built_in"]

WORKLOADS: dict[str, Callable[[Path | None], Workload]] = {
    "digits": digits,
    "digits-labels": digits_labels,
    "digits-autoencoder": digits_autoencoder,
    "friedman": friedman,
    "counting": counting,
    "mnist": mnist_lenet5,
    "mnist-lenet5": mnist_lenet5,
    "mnist-lenet5-adam": mnist_lenet5_adam,
    "mnist-nielsen": mnist_nielsen,
    "mnist-mlp": mnist_mlp,
    "mnist-cnn": mnist_cnn,
    "mnist-resnet": mnist_resnet,
    "fashion-mnist": fashion_mnist_lenet5,
    "fashion-mnist-lenet5": fashion_mnist_lenet5,
    "fashion-mnist-cnn": fashion_mnist_cnn,
    "fashion-mnist-resnet": fashion_mnist_resnet,
    "cifar10-vgg": cifar10_vgg,
    "fish-resnet34": fish_resnet34,
    "flickr8k-captions": flickr8k_captions,
    "shakespeare": shakespeare,
    "shakespeare-gpt": shakespeare_gpt,
}


def built_in(name: str, data: Path | None) -> Workload:
    """The built-in workload of that name."""
    if name not in WORKLOADS:
        raise unknown("workload", name, WORKLOADS, "A workload of your own: file.py:name.")
    return WORKLOADS[name](data)
