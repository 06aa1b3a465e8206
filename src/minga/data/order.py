"""Which samples a rank takes in which step: every sample once per epoch, whatever the number of workers.

The order is a function of (seed, epoch) alone and the position is a number, so every rank knows everybody's
share without asking, and a run can go on with another number of workers from where it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Order", "Share"]


@dataclass(frozen=True)
class Share:
    """One rank's samples of one global batch."""

    indices: Tensor
    """Of the samples, in the data set's numbering; empty when a short last batch leaves nothing for this rank."""
    weight: float
    """The size of this share relative to an equal one: 1 unless the global batch is short or uneven."""
    total: int
    """Samples of the global batch, over all ranks."""


class Order:
    """A data set's samples in the order in which workers take them; `epoch` and `offset` are where they are."""

    def __init__(self, samples: int, seed: int, *, shuffle: bool = True, drop_last: bool = False) -> None:
        self.samples = samples
        self.epoch = 0
        self.offset = 0
        self._seed = seed
        self._shuffle = shuffle
        self._drop_last = drop_last
        self._indices = torch.empty(0, dtype=torch.int64)
        self._indices_of = -1

    def take(self, rank: int, workers: int, batch: int, total: int | None = None) -> Share:
        """The share of `rank` in the next global batch, which never reaches into the next epoch.

        It has `total` samples, by default `workers` x `batch`.
        """
        asked = total or workers * batch
        total = min(asked, self.samples - self.offset)
        start, stop = total * rank // workers, total * (rank + 1) // workers
        indices = self._order_of(self.epoch)[self.offset + start : self.offset + stop]
        self.offset += total
        left = self.samples - self.offset
        if left == 0 or (self._drop_last and left < asked):
            self.next_epoch()
        return Share(indices, (stop - start) * workers / total, total)

    def next_epoch(self) -> None:
        """Go to the start of the next epoch, whatever is left of this one."""
        self.epoch += 1
        self.offset = 0

    @property
    def progress(self) -> float:
        """Epochs done, with the part of the current one."""
        return self.epoch + self.offset / self.samples

    def _order_of(self, epoch: int) -> Tensor:
        if self._indices_of != epoch:
            if self._shuffle:
                generator = torch.Generator().manual_seed(self._seed * 1_000_003 + epoch)
                self._indices = torch.randperm(self.samples, generator=generator)
            else:
                self._indices = torch.arange(self.samples)
            self._indices_of = epoch
        return self._indices
