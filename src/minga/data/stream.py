"""A data set that can only be read from its beginning on: files of records, a queue's log, generated samples.

    reader = StreamReader(dataset)
    reader.read(Stretch(epoch=0, start=640, stop=672))      # those samples, skipping what lies before
    reader.reaches(0, 640, 1000)                            # 1000, or where the epoch ends before that

Each rank reads the whole stream and keeps its own samples, so all know where an epoch ends without asking each other.
A stream must begin anew whenever it is iterated, with the same samples in the same order for the same epoch; one
iteration must not disturb another one that goes on, and an iteration keeps the epoch that it began with. Two methods
help where it has them, named as in Hugging Face's data sets: `set_epoch(epoch)` hears which epoch is read next and may
shuffle by it; `skip(samples)` returns a stream without its first samples, quicker than reading them.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, cast

from torch.utils.data import Dataset, IterableDataset

from minga.data.order import Order, Share, Stretch
from minga.errors import WorkloadError

__all__ = ["StreamReader", "StreamedOrder", "is_stream"]

# A run reads on at one place. What is owed lies before that, and is read again without losing the place.
_PLACES = 2

# Ranks in threads of one process may share a data set, and `set_epoch` changes it until its first sample is read.
_OPENING = threading.Lock()


def is_stream(dataset: object) -> bool:
    """Whether it has no index."""
    return isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__")


class StreamReader:
    """Reads any stretch of a stream, quickly where one follows the other."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self._dataset = dataset
        self._places: list[_Place] = []
        self.samples = _length(dataset)
        """In an epoch: the stream's length where it has one, else None until its end was seen."""

    def read(self, stretch: Stretch) -> list[Any]:
        """The samples of a stretch."""
        place = self._place_at(stretch.epoch, stretch.start)
        found = list(place.take(len(stretch))) if place.at == stretch.start else []
        if len(found) < len(stretch):
            if place.at == 0:
                self._end_at(stretch.epoch, 0)
            raise self._too_short(stretch.epoch, place.at, stretch.stop)
        return found

    def in_turn(self, epoch: int = 0) -> Iterator[Any]:
        """All samples of an epoch, as many as the stream's length says where it has one."""
        place = self._open(epoch, 0)
        self._places.remove(place)
        return place.take(self.samples)

    def reaches(self, epoch: int, start: int, count: int) -> int:
        """`count`, or the number of samples in this epoch if it has fewer; what comes next is sample number `start`."""
        if self.samples is not None:
            return min(count, self.samples)
        if any(place.epoch == epoch and place.seen >= count for place in self._places):
            return count
        place = self._place_at(epoch, start)
        if place.look_ahead(count):
            return count
        if place.seen <= start and start > 0:  # there was another sample, or the epoch would have been over
            raise WorkloadError(
                f"the stream has ended before sample {start + 1:,} of epoch {epoch + 1}, which a run is to go on from; "
                "it must have the same samples as before"
            )
        self._end_at(epoch, place.seen)
        return place.seen

    def _place_at(self, epoch: int, start: int) -> _Place:
        here = [place for place in self._places if place.epoch == epoch and place.at <= start]
        place = max(here, key=lambda each: each.at, default=None) or self._open(epoch, start)
        self._places.remove(place)
        self._places.append(place)
        for _ in place.take(start - place.at):
            pass
        return place

    def _open(self, epoch: int, start: int) -> _Place:
        dataset: Any = self._dataset
        with _OPENING:
            quick = start > 0 and hasattr(dataset, "skip")
            stream = dataset.skip(start) if quick else dataset
            if hasattr(stream, "set_epoch"):  # of what is read: a part of a stream may not know of its whole's epoch
                stream.set_epoch(epoch)
            place = _Place(iter(stream), epoch, start if quick else 0)
            place.look_ahead(place.at + 1)
        self._places = [*self._places, place][-_PLACES:]
        return place

    def _end_at(self, epoch: int, samples: int) -> None:
        if samples == 0:
            raise WorkloadError(
                "the stream of samples is empty, or can be read only once; it must begin anew each time"
            )
        if self.samples is None:
            self.samples = samples

    def _too_short(self, epoch: int, samples: int, needed: int) -> WorkloadError:
        expected = f"an epoch has {self.samples:,}" if self.samples else f"at least {needed:,} were there before"
        return WorkloadError(
            f"the stream has ended after {samples:,} samples of epoch {epoch + 1}, but {expected}; it must have the "
            "same number each time, and as many as its length says"
        )


class _Place:
    """One iteration over a stream, with what was read ahead."""

    def __init__(self, iterator: Iterator[Any], epoch: int, at: int) -> None:
        self._iterator = iterator
        self._ahead: deque[Any] = deque()
        self.epoch = epoch
        self.at = at
        """The number of the sample that comes next."""

    @property
    def seen(self) -> int:
        """The number of the first sample that nobody has looked at."""
        return self.at + len(self._ahead)

    def take(self, count: int | None) -> Iterator[Any]:
        """So many samples, fewer at the end; None: all."""
        for _ in itertools.count() if count is None else range(count):
            if not self._ahead and not self.look_ahead(self.at + 1):
                return
            self.at += 1
            yield self._ahead.popleft()

    def look_ahead(self, count: int) -> bool:
        """Read on until the samples before number `count` were seen; whether there are so many."""
        while self.seen < count:
            try:
                self._ahead.append(next(self._iterator))
            except StopIteration:
                return False
        return True


class StreamedOrder(Order):
    """The samples of a stream, in its own order, as workers take them."""

    def __init__(self, reader: StreamReader, *, drop_last: bool = False) -> None:
        self._reader = reader
        super().__init__(None, 0, shuffle=False, drop_last=drop_last)

    @property
    def samples(self) -> int | None:
        """As a position has told, or as was found by reading."""
        return self._told or self._reader.samples

    @samples.setter
    def samples(self, samples: int | None) -> None:
        self._told = samples

    def read(self, share: Share) -> list[Any]:
        """A rank's own samples."""
        return [sample for stretch in share.stretches for sample in self._reader.read(stretch)]

    def left(self, wanted: int) -> int:
        wanted += self.offset
        if self.samples is not None:
            return min(wanted, self.samples) - self.offset
        return self._reader.reaches(self.epoch, self.offset, wanted) - self.offset


def _length(dataset: Dataset[Any]) -> int | None:
    if isinstance(dataset, Iterator):
        raise WorkloadError(
            f"the data is a {type(dataset).__name__}, which can be read only once; give an object whose __iter__ "
            "begins anew, such as a torch IterableDataset"
        )
    if not isinstance(dataset, Iterable):
        raise WorkloadError(f"the data is a {type(dataset).__name__}, which has neither an index nor an iterator")
    try:
        samples = len(cast(Any, dataset))
    except TypeError:
        return None
    if samples < 1:
        raise WorkloadError(f"the stream of samples says that it has {samples}; give at least one")
    return int(samples)
