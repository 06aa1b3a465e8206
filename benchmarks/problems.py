"""The models of the benchmarks, on random pictures: 61,706, about 700,000 and 421,642 parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.utils.data import TensorDataset

from minga import Workload
from minga.workloads.models import LeNet5, SmallConvNet, SmallResNet

MODELS = {"LeNet-5": LeNet5, "small ResNet": SmallResNet}
BATCH = {"LeNet-5": 64, "small ResNet": 32}
STEPS = {"LeNet-5": 60, "small ResNet": 12}

make_optimizer = partial(torch.optim.SGD, lr=0.01, momentum=0.9)


def workload(name: str) -> Workload:
    return _on_random_pictures(name, MODELS[name], BATCH[name])


def small_convolutions() -> Workload:
    """For `minga train benchmarks/problems.py:small_convolutions`."""
    return _on_random_pictures("small convolutions", SmallConvNet, batch=64)


def _on_random_pictures(name: str, model: Callable[[], nn.Module], batch: int) -> Workload:
    generator = torch.Generator().manual_seed(0)
    samples = 4096
    pictures = torch.randn(samples, 1, 28, 28, generator=generator)
    classes = torch.randint(0, 10, (samples,), generator=generator)
    return Workload(
        name=name,
        model=model,
        train=TensorDataset(pictures, classes),
        optimizer=make_optimizer,
        batch=batch,
    )
