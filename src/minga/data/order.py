"""Which samples a rank takes in which step: every sample once per epoch, whatever the number of workers.

The order is a function of (seed, epoch) alone and the position is a number, so every rank knows everybody's
share without asking, and a run can go on with another number of workers from where it is. Samples that were given out
to a worker which then failed, so that nothing of them is in the model, are owed: they come next.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Blocks", "Order", "Share", "Stretch", "left_out", "takers"]

# The one under way, one that is read ahead of, one that samples are owed of.
_EPOCHS_KEPT = 3


@dataclass(frozen=True)
class Stretch:
    """Samples that lie one after the other in the order of an epoch."""

    epoch: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Share:
    """One rank's samples of one global batch."""

    stretches: Sequence[Stretch]
    """Where they lie in the order of an epoch; none when a short last batch leaves nothing for this rank."""
    indices: Tensor
    """In the data set's numbering."""
    weight: float
    """The size of this share relative to an equal one: 1 unless the global batch is short or uneven."""
    total: int
    """Samples of the global batch, over all ranks."""


@dataclass(frozen=True)
class Blocks:
    """Shuffling for data on disk: blocks in any order, then the samples of some blocks in a row among each other.

    All of a block is read within a window of the epoch, so a disk is read in long pieces; each sample is taken once.
    """

    block: int
    """Samples of a block, which lie one after the other."""
    window: int
    """Blocks whose samples are mixed."""

    def permutation(self, samples: int, generator: torch.Generator) -> Tensor:
        """An order of all samples."""
        blocks = torch.randperm(-(-samples // self.block), generator=generator)
        numbers = (blocks[:, None] * self.block + torch.arange(self.block)).flatten()
        numbers = numbers[numbers < samples]  # one block may be shorter
        width = self.block * self.window
        for start in range(0, samples, width):
            window = numbers[start : start + width]
            numbers[start : start + width] = window[torch.randperm(len(window), generator=generator)]
        return numbers


class Order:
    """A data set's samples in the order in which workers take them; `epoch` and `offset` are where they are."""

    def __init__(
        self,
        samples: int | None,
        seed: int,
        *,
        shuffle: bool = True,
        blocks: Blocks | None = None,
        drop_last: bool = False,
    ) -> None:
        """`samples`: in an epoch; None where a stream has not come to its end yet.

        `blocks`: shuffle so that samples which lie together are taken at about the same time.
        """
        self.samples = samples
        self.epoch = 0
        self.offset = 0
        self.owed: list[Stretch] = []
        """Samples that were given out before, and are in no model."""
        self._seed = seed
        self._shuffle = shuffle
        self._drop_last = drop_last
        self._blocks = blocks
        # By epoch; shared with copies, of which one may look into the next epoch already.
        self._shuffled: dict[int, Tensor] = {}

    def take(self, rank: int, workers: int, batch: int, total: int | None = None) -> Share:
        """The share of `rank` in the next global batch, which never reaches into the next epoch.

        It has `total` samples, by default `workers` x `batch`.
        """
        stretches = self.advance(total or workers * batch)
        size = sum(map(len, stretches))
        own = _share_of(stretches, rank, workers)
        indices = [self._indices_of(stretch) for stretch in own]
        taken = indices[0] if len(indices) == 1 else torch.cat([torch.empty(0, dtype=torch.int64), *indices])
        return Share(own, taken, len(taken) * workers / size, size)

    def advance(self, asked: int) -> list[Stretch]:
        """Go on by one global batch of `asked` samples; what it consists of: what is owed, or what comes next."""
        if self.owed:
            owed, self.owed = _cut(self.owed, 0, asked), _cut(self.owed, asked, None)
            return owed
        start = self.offset
        # As far as it matters for the end: whether there is another sample, or another whole batch.
        left = self.left(2 * asked if self._drop_last else asked + 1)
        self.offset += min(asked, left)
        stretch = Stretch(self.epoch, start, self.offset)
        left -= len(stretch)
        if left == 0 or (self._drop_last and left < asked):
            self.next_epoch()
        return [stretch]

    def next_epoch(self) -> None:
        """Go to the start of the next epoch, whatever is left of this one."""
        self.epoch += 1
        self.offset = 0

    @property
    def given_out(self) -> float:
        """Epochs whose samples were given out, with the part of the current one where it is known."""
        return float(self.epoch) if self.samples is None else self.epoch + self.offset / self.samples

    @property
    def progress(self) -> float:
        """Epochs done: what was given out, less what is owed."""
        return self.given_out - (sum(map(len, self.owed)) / self.samples if self.samples else 0.0)

    def position(self) -> dict[str, Any]:
        """Where it is, as JSON knows it."""
        owed = [[stretch.epoch, stretch.start, stretch.stop] for stretch in self.owed]
        return {"epoch": self.epoch, "offset": self.offset, "samples": self.samples, "owed": owed}

    def go_to(self, position: Mapping[str, Any]) -> None:
        """Go on from a position; `ValueError` if there is none like that."""
        epoch, offset, samples = position["epoch"], position["offset"], position["samples"]
        if None not in (samples, self.samples) and samples != self.samples:
            raise ValueError(f"the position is one of {samples} samples, but there are {self.samples} here")
        if samples is not None and (not _whole(samples) or samples == 0):
            raise ValueError(f"there can't be {samples!r} samples")
        end = self.samples if samples is None else samples
        owed = [Stretch(*stretch) for stretch in position["owed"]]
        if not _whole(epoch) or not _whole(offset) or (end is not None and offset > end):
            raise ValueError(f"epoch and offset can't be {epoch!r} and {offset!r} of {end} samples")
        for each in owed:
            whole = _whole(each.epoch) and _whole(each.start) and _whole(each.stop) and each.start < each.stop
            if not whole or (end is not None and each.stop > end):
                raise ValueError(f"samples {each.start!r} to {each.stop!r} of epoch {each.epoch!r} can't be owed")
        self.samples, self.epoch, self.offset, self.owed = end, epoch, offset, owed

    def copy(self) -> Order:
        """Another one at the same place."""
        other = copy.copy(self)
        other.owed = list(self.owed)
        return other

    def left(self, wanted: int) -> int:
        """Samples that are left of this epoch, or at least `wanted` of them."""
        assert self.samples is not None
        return self.samples - self.offset

    def _indices_of(self, stretch: Stretch) -> Tensor:
        if not self._shuffle:
            return torch.arange(stretch.start, stretch.stop)
        shuffled = self._shuffled.get(stretch.epoch)
        if shuffled is None:
            assert self.samples is not None
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + stretch.epoch)
            if self._blocks is None:
                shuffled = torch.randperm(self.samples, generator=generator)
            else:
                shuffled = self._blocks.permutation(self.samples, generator)
            while len(self._shuffled) >= _EPOCHS_KEPT:
                self._shuffled.pop(next(iter(self._shuffled)))
            self._shuffled[stretch.epoch] = shuffled
        return shuffled[stretch.start : stretch.stop]


def left_out(
    order: Order, *, workers: int, batch: int, total: int | None, steps: Sequence[int], included: Sequence[int]
) -> list[Stretch]:
    """What was given out in `steps`, which begin where `order` is, and is not in the model; `order` goes on meanwhile.

    `included`: for each worker the last of these steps whose samples are in it.
    """
    missing: list[Stretch] = []
    for step in steps:
        stretches = order.advance(total or workers * batch)
        late = [rank for rank in range(workers) if included[rank] < step]
        if len(late) == workers:
            missing += stretches
        else:
            missing += [each for rank in late for each in _share_of(stretches, rank, workers)]
    return _joined(missing)


def takers(total: int, workers: int) -> list[int]:
    """The ranks that have samples of a global batch of `total`: all, unless it is shorter than there are workers."""
    return [rank for rank in range(workers) if total * rank // workers < total * (rank + 1) // workers]


def _share_of(stretches: Sequence[Stretch], rank: int, workers: int) -> list[Stretch]:
    total = sum(map(len, stretches))
    return _cut(stretches, total * rank // workers, total * (rank + 1) // workers)


def _cut(stretches: Sequence[Stretch], start: int, stop: int | None) -> list[Stretch]:
    """From the sample with this number to that with that one, counted through all stretches."""
    found, before = [], 0
    for each in stretches:
        low = max(start - before, 0)
        high = len(each) if stop is None else min(stop - before, len(each))
        if low < high:
            found.append(Stretch(each.epoch, each.start + low, each.start + high))
        before += len(each)
    return found


def _joined(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Neighbours as one."""
    joined: list[Stretch] = []
    for each in sorted(stretches, key=lambda stretch: (stretch.epoch, stretch.start)):
        if joined and (joined[-1].epoch, joined[-1].stop) == (each.epoch, each.start):
            joined[-1] = Stretch(each.epoch, joined[-1].start, each.stop)
        else:
            joined.append(each)
    return joined


def _whole(number: object) -> bool:
    return type(number) is int and number >= 0
