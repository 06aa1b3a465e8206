"""`digits` with SGD: some codecs correct the momentum of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from minga import Workload
from minga.workloads.digits import digits

__all__ = ["digits_with_momentum"]


def digits_with_momentum(data: Path | None = None) -> Workload:
    return dataclasses.replace(
        digits(data), optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    )
