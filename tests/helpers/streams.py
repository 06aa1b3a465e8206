"""Samples as a stream, whose length nobody knows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from torch.utils.data import IterableDataset

from minga.runs.workload import Workload
from minga.testing.problems import blobs

__all__ = ["streamed_blobs"]


def streamed_blobs() -> Workload:
    """The same samples as a stream that does not tell its length."""
    workload = blobs()
    return dataclasses.replace(workload, train=_InTurn(workload.train), test=_InTurn(workload.test))


class _InTurn(IterableDataset[Any]):
    """A map-style data set without its index."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return iter([self._dataset[index] for index in range(len(self._dataset))])
