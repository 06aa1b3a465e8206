"""Shards while they are written: every sample has its place from the beginning, so several processes write at once.

Where samples turn out to be bad, places stay empty; at the end the last samples of a part move there.
"""

from __future__ import annotations

import itertools
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from minga.data.formats.base import PARTS, RawSample
from minga.data.prepared.shard_file import Field, ShardLayout, record_bytes

__all__ = ["ShardPlaces", "ShardWriter"]

_OPEN_FILES = 64


@dataclass(frozen=True)
class ShardPlaces:
    """Which file has which sample."""

    folder: Path
    fields: Mapping[str, Field]
    counts: tuple[int, ...]
    """Samples of each part."""
    per_shard: int

    @classmethod
    def of(cls, folder: Path, fields: Mapping[str, Field], counts: Sequence[int], shard_bytes: int) -> ShardPlaces:
        per_shard = max(1, shard_bytes // max(1, record_bytes(fields)))
        return cls(folder, fields, tuple(counts), per_shard)

    @cached_property
    def shards(self) -> list[list[tuple[Path, ShardLayout]]]:
        """The files of each part."""
        return [
            [
                (
                    self.folder / f"{part}-{number:05d}.safetensors",
                    ShardLayout.of(self.fields, min(self.per_shard, count - start)),
                )
                for number, start in enumerate(range(0, count, self.per_shard))
            ]
            for part, count in zip(PARTS, self.counts, strict=True)
        ]

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(layout.size for files in self.shards for _, layout in files)

    def make_files(self) -> None:
        """All of them, in their full size and without samples."""
        for path, layout in itertools.chain.from_iterable(self.shards):
            with path.open("wb") as file:
                file.write(layout.header)
                file.flush()
                # Room on the disk, not only a size: a disk that gets full is noticed now, not in the middle.
                os.posix_fallocate(file.fileno(), 0, layout.size)

    def without(self, holes: Set[tuple[int, int]]) -> ShardPlaces:
        """Have the last samples of each part move to where there are none (by part and position); the places then."""
        counts = tuple(count - sum(each == part for each, _ in holes) for part, count in enumerate(self.counts))
        after = replace(self, counts=counts)
        writer = ShardWriter(self)
        for part, left in enumerate(counts):
            to = sorted(position for each, position in holes if each == part and position < left)
            movers = (position for position in range(left, self.counts[part]) if (part, position) not in holes)
            for hole, mover in zip(to, movers, strict=True):
                writer.move(part, mover, hole)
        writer.close()
        for old, new in zip(self.shards, after.shards, strict=True):
            for path, _ in old[len(new) :]:
                path.unlink()
            if new and new[-1] != old[len(new) - 1]:
                _cut(new[-1][0], old[len(new) - 1][1], new[-1][1])
        return after


class ShardWriter:
    """Writes samples to their places."""

    def __init__(self, places: ShardPlaces) -> None:
        self._places = places
        self._open: OrderedDict[Path, int] = OrderedDict()

    def write(self, part: int, position: int, sample: RawSample) -> None:
        descriptor, layout, row = self._at(part, position)
        for name, field in self._places.fields.items():
            content = np.ascontiguousarray(sample[name], dtype=field.dtype).tobytes()
            offset, nbytes = layout.place(name, row)
            assert len(content) == nbytes, f"{name} has {len(content)} bytes instead of {nbytes}"
            while content:
                written = os.pwrite(descriptor, content, offset)
                content, offset = content[written:], offset + written

    def move(self, part: int, start: int, to: int) -> None:
        """A sample to another place of its part."""
        descriptor, layout, row = self._at(part, start)
        sample = {}
        for name, field in self._places.fields.items():
            offset, nbytes = layout.place(name, row)
            sample[name] = np.frombuffer(os.pread(descriptor, nbytes, offset), dtype=field.dtype)
        self.write(part, to, sample)

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])

    def _at(self, part: int, position: int) -> tuple[int, ShardLayout, int]:
        """The open file that a sample is in, what it is like, and the sample's row in it."""
        shard, row = divmod(position, self._places.per_shard)
        path, layout = self._places.shards[part][shard]
        if path in self._open:
            self._open.move_to_end(path)
        else:
            if len(self._open) >= _OPEN_FILES:
                os.close(self._open.popitem(last=False)[1])
            self._open[path] = os.open(path, os.O_RDWR)
        return self._open[path], layout, row


def _cut(path: Path, old: ShardLayout, new: ShardLayout) -> None:
    """A shard with fewer samples than it was made for; one shard fits into memory."""
    content = path.read_bytes()
    with path.open("wb") as file:
        file.write(new.header)
        for name in new.starts:  # in the order in which they lie
            offset, nbytes = old.place(name, 0)
            file.write(content[offset : offset + nbytes * new.samples])
