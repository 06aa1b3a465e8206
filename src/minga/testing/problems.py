"""Small problems in float64, on which algorithms can be compared to the last digits."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import TensorDataset

from minga.runs.workload import Workload

__all__ = ["adam", "blobs", "counter", "sgd_with_momentum"]

OptimizerMaker = Callable[[Iterable[nn.Parameter]], Optimizer]


def sgd_with_momentum(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3)


def adam(parameters: Iterable[nn.Parameter]) -> Optimizer:
    return torch.optim.Adam(parameters, lr=0.005)


def blobs(
    samples: int = 150,
    *,
    optimizer: OptimizerMaker = sgd_with_momentum,
    features: int = 5,
    batch_norm: bool = False,
) -> Workload:
    """Three clouds of points and a small network. 150 samples leave a short last batch for most sizes."""
    generator = torch.Generator().manual_seed(7)
    classes = torch.arange(samples) % 3
    centres = torch.randn(3, features, generator=generator, dtype=torch.float64) * 2
    points = centres[classes] + torch.randn(samples, features, generator=generator, dtype=torch.float64)
    dataset = TensorDataset(points, classes)

    def model() -> nn.Module:
        norm = [nn.BatchNorm1d(7)] if batch_norm else []
        return nn.Sequential(nn.Linear(features, 7), *norm, nn.Tanh(), nn.Linear(7, 3)).double()

    return Workload(name="blobs", model=model, train=dataset, test=dataset, optimizer=optimizer, batch=8, epochs=4)


def counter(samples: int = 150) -> Workload:
    """A parameter for each sample, which grows when the sample is used: one that is 0 has not reached the model."""
    dataset = TensorDataset(torch.arange(samples), torch.zeros(samples))
    return Workload(
        name="counter",
        model=lambda: _Counts(samples),
        train=dataset,
        loss=lambda outputs, targets: -outputs.mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
        batch=2,
        epochs=1,
    )


class _Counts(nn.Module):
    def __init__(self, samples: int) -> None:
        super().__init__()
        self.counts = nn.Parameter(torch.zeros(samples, dtype=torch.float64))

    def forward(self, indices: Tensor) -> Tensor:
        return self.counts[indices]
