"""The built-in workloads: `minga train digits`, `minga train mnist --data DIR`; `minga workloads` lists them.

The first line of each function's docstring is what that list says of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from minga.errors import unknown
from minga.runs.workload import Workload
from minga.workloads import mnist, tasks, text
from minga.workloads.captions.workload import flickr8k_captions
from minga.workloads.cifar10 import cifar10_vgg
from minga.workloads.digits import digits
from minga.workloads.fish import fish_resnet34

__all__ = ["WORKLOADS", "built_in"]

WORKLOADS: dict[str, Callable[[Path | None], Workload]] = {
    "digits": digits,
    "digits-labels": tasks.digits_labels,
    "digits-autoencoder": tasks.digits_autoencoder,
    "friedman": tasks.friedman,
    "counting": tasks.counting,
    "mnist": mnist.mnist_lenet5,
    "mnist-lenet5": mnist.mnist_lenet5,
    "mnist-lenet5-adam": mnist.mnist_lenet5_adam,
    "mnist-nielsen": mnist.mnist_nielsen,
    "mnist-mlp": mnist.mnist_mlp,
    "mnist-cnn": mnist.mnist_cnn,
    "mnist-resnet": mnist.mnist_resnet,
    "fashion-mnist": mnist.fashion_mnist_lenet5,
    "fashion-mnist-lenet5": mnist.fashion_mnist_lenet5,
    "fashion-mnist-cnn": mnist.fashion_mnist_cnn,
    "fashion-mnist-resnet": mnist.fashion_mnist_resnet,
    "cifar10-vgg": cifar10_vgg,
    "fish-resnet34": fish_resnet34,
    "flickr8k-captions": flickr8k_captions,
    "shakespeare": text.shakespeare,
    "shakespeare-gpt": text.shakespeare_gpt,
}


def built_in(name: str, data: Path | None) -> Workload:
    """The built-in workload of that name."""
    if name not in WORKLOADS:
        raise unknown("workload", name, WORKLOADS, "A workload of your own: file.py:name.")
    return WORKLOADS[name](data)
