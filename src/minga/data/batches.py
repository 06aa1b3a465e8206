"""From indices to a batch of tensors on a device."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset, default_collate

from minga.data.order import Blocks
from minga.data.read_ahead import in_advance
from minga.data.stream import StreamReader, is_stream
from minga.errors import WorkloadError

__all__ = [
    "ReadByBatch",
    "batches_ahead",
    "batches_in_order",
    "blocks_of",
    "collate",
    "fetch",
    "first_samples",
    "length",
    "part_of",
    "to_device",
]


@runtime_checkable
class ReadByBatch(Protocol):
    """A data set that gives whole batches, faster than sample by sample."""

    def read_batch(self, indices: Tensor) -> Any:
        """The samples at `indices` as one batch: tensors whose first axis is the samples', or a tuple of such."""


def fetch(dataset: Dataset[Any], indices: Tensor, device: torch.device) -> Any:
    """The samples at `indices` as one batch."""
    if type(dataset) is TensorDataset:
        return tuple(tensor[indices].to(device) for tensor in dataset.tensors)
    if isinstance(dataset, ReadByBatch):
        return to_device(dataset.read_batch(indices), device)
    if hasattr(dataset, "__getitems__"):  # several samples at once, as torch's own loader asks for them
        return collate(dataset.__getitems__(indices.tolist()), device)
    return collate([dataset[index] for index in indices.tolist()], device)


def collate(samples: Sequence[Any], device: torch.device) -> Any:
    """As one batch."""
    return to_device(default_collate(list(samples)), device)


def first_samples(dataset: Dataset[Any], count: int, device: torch.device) -> Any:
    """Some samples as one batch, fewer if there are not so many."""
    if is_stream(dataset):
        samples = list(itertools.islice(StreamReader(dataset).in_turn(), count))
        if not samples:
            raise WorkloadError("the stream of samples is empty; give at least one")
        return collate(samples, device)
    return fetch(dataset, torch.arange(min(count, length(dataset))), device)


def batches_in_order(dataset: Dataset[Any], start: int, stop: int, batch: int, device: torch.device) -> Iterator[Any]:
    """Samples `start` to `stop`, a batch at a time."""
    reads = (
        partial(fetch, dataset, torch.arange(at, min(at + batch, stop)), device) for at in range(start, stop, batch)
    )
    # Batches of evaluation are large, and memory may be what there is least of: one being used, one ready, one read.
    ahead = min(2, batches_ahead(dataset))
    return in_advance(reads, ahead) if ahead else (read() for read in reads)


def batches_ahead(dataset: Dataset[Any]) -> int:
    """How many batches may be read in threads before they are needed: what the data set says, or none.

    A data set that says nothing may not be made for threads, or may draw random numbers as it is read.
    """
    return int(getattr(dataset, "reads_ahead", 0))


def blocks_of(dataset: Dataset[Any]) -> Blocks | None:
    """How its samples should be shuffled, where they lie on a disk and any order would be slow; None: in any order."""
    blocks = getattr(dataset, "blocks", None)
    return blocks if isinstance(blocks, Blocks) else None


def part_of(dataset: Dataset[Any], rank: int, ranks: int, batch: int, device: torch.device) -> Iterator[Any]:
    """The samples that one of several ranks looks at, a batch at a time; together they look at each sample once."""
    if is_stream(dataset):
        # Nobody knows where its middle is, so they take turns.
        samples = StreamReader(dataset).in_turn()
        for number in itertools.count():
            taken = list(itertools.islice(samples, batch))
            if not taken:
                return
            if number % ranks == rank:
                yield collate(taken, device)
    else:
        samples_in_all = length(dataset)
        start, stop = samples_in_all * rank // ranks, samples_in_all * (rank + 1) // ranks
        yield from batches_in_order(dataset, start, stop, batch, device)


def length(dataset: Dataset[Any]) -> int:
    """The number of samples; `WorkloadError` for a stream that does not say it."""
    samples = StreamReader(dataset).samples if is_stream(dataset) else len(dataset)  # type: ignore[arg-type]
    if samples is None:
        raise WorkloadError(
            "the data is a stream without a length, so steps can't be counted in advance; give it a __len__"
        )
    return samples


def to_device(value: Any, device: torch.device) -> Any:
    """A batch, whatever it consists of."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: to_device(item, device) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple takes its items one by one
        return type(value)(*(to_device(item, device) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(to_device(item, device) for item in value)
    return value
