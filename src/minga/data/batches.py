"""From indices to a batch of tensors on a device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset, default_collate

__all__ = ["batches_in_order", "fetch", "length"]


def fetch(dataset: Dataset[Any], indices: Tensor, device: torch.device) -> Any:
    """The samples at `indices` as one batch."""
    if type(dataset) is TensorDataset:
        return tuple(tensor[indices].to(device) for tensor in dataset.tensors)
    return _to(default_collate([dataset[index] for index in indices.tolist()]), device)


def batches_in_order(dataset: Dataset[Any], start: int, stop: int, batch: int, device: torch.device) -> Iterator[Any]:
    """Samples `start` to `stop`, a batch at a time."""
    for at in range(start, stop, batch):
        yield fetch(dataset, torch.arange(at, min(at + batch, stop)), device)


def length(dataset: Dataset[Any]) -> int:
    return len(dataset)  # type: ignore[arg-type]  # checked when the workload was loaded


def _to(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: _to(item, device) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple takes its items one by one
        return type(value)(*(_to(item, device) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(_to(item, device) for item in value)
    return value
