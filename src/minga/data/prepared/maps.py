"""Memory maps over the shards of a prepared set, of which exactly the wanted pieces are read from the disk.

    maps = ShardMaps(folder, manifest, shards)
    maps.open(3, torch.tensor([5, 900]))["inputs"][900]      # on its way from the disk since `open`

Left to itself, the system reads megabytes around the first byte that is touched of a map. With samples in any order and
little memory, most of that is dropped before it is used: a hundred times the data set was read in an epoch. So maps are
advised to expect any order, and what a batch needs is asked for in advance, all of it at once.
"""

from __future__ import annotations

import mmap
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minga.data.prepared.manifest import PreparedManifest, ShardFile
from minga.data.prepared.shard_file import ShardLayout
from minga.errors import DataError

__all__ = ["ShardMaps", "pieces"]

# Pages that maps have touched count as this process's until it says that it does not need them; they may well stay in
# the system's memory, but then they are the first to go.
_LET_GO_BYTES = 32 << 20
# Each holds a descriptor, of which a process often has no more than 1,024.
_OPEN_MAPS = 256
# Where samples are much smaller than what a disk gives at once, their neighbours come along: they are wanted soon.
_SMALL_BYTES = 16 << 10
_PIECE_BYTES = 64 << 10


class ShardMaps:
    """Shards as tensors over memory maps, for any number of threads."""

    def __init__(self, folder: Path, manifest: PreparedManifest, shards: Sequence[ShardFile]) -> None:
        self._folder = folder
        self._manifest = manifest
        self._shards = shards
        self._lock = threading.Lock()
        self._open: OrderedDict[int, tuple[mmap.mmap, ShardLayout, dict[str, Tensor]]] = OrderedDict()
        self._touched = 0

    def open(self, number: int, rows: Tensor) -> dict[str, Tensor]:
        """The fields of a shard, of which these rows will be read."""
        with self._lock:
            if number in self._open:
                self._open.move_to_end(number)
            else:
                while len(self._open) >= _OPEN_MAPS:  # whoever reads from one keeps it as long as that takes
                    self._open.popitem(last=False)
                self._open[number] = self._map(self._shards[number])
            mapped, layout, tensors = self._open[number]
        wanted = np.sort(rows.numpy())
        for name in layout.fields:
            for start, length in pieces(layout, name, wanted):
                mapped.madvise(mmap.MADV_WILLNEED, start, length)
        return tensors

    def read(self, nbytes: int, samples: int) -> None:
        """So much was read; now and then all pages are let go of."""
        with self._lock:
            self._touched += nbytes + samples * mmap.PAGESIZE
            if self._touched >= _LET_GO_BYTES:
                self._touched = 0
                # Somebody who is reading at this moment gets the same pages again, from memory.
                for mapped, _, _ in self._open.values():
                    mapped.madvise(mmap.MADV_DONTNEED)

    def _map(self, shard: ShardFile) -> tuple[mmap.mmap, ShardLayout, dict[str, Tensor]]:
        path = self._folder / shard.file
        try:
            with path.open("rb") as file:
                # Private and never written to: torch wants memory that could be.
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:
            raise DataError(f"{path} can't be read any more ({error}); see minga data verify {self._folder}") from None
        layout = self._manifest.layout(shard)
        # The size again: beyond the end of a file that was cut meanwhile, reading would end the process.
        if len(mapped) != layout.size or mapped[: len(layout.header)] != layout.header:
            raise DataError(f"{path} is not what the manifest says; see minga data verify {self._folder}")
        mapped.madvise(mmap.MADV_RANDOM)
        tensors = {}
        for name, field in layout.fields.items():
            kind = getattr(torch, field.dtype)
            count = shard.samples * (field.bytes // kind.itemsize)
            flat = torch.frombuffer(mapped, dtype=kind, count=count, offset=layout.starts[name])
            tensors[name] = flat.view(shard.samples, *field.shape)
        return mapped, layout, tensors

    def __reduce__(self) -> tuple[Any, ...]:
        """Maps stay behind when readers of torch's DataLoader are started."""
        return ShardMaps, (self._folder, self._manifest, self._shards)


def pieces(layout: ShardLayout, name: str, rows: np.ndarray[Any, np.dtype[np.int64]]) -> Iterator[tuple[int, int]]:
    """Where to read for these rows, which grow: first byte and length, neighbours and pages in common as one."""
    first, nbytes = layout.place(name, 0)
    grain = _PIECE_BYTES if nbytes < _SMALL_BYTES else mmap.PAGESIZE
    starts = (first + rows * nbytes) // grain * grain
    stops = -(-(first + (rows + 1) * nbytes) // grain) * grain
    breaks = np.flatnonzero(starts[1:] > stops[:-1]) + 1
    for start, stop in zip(starts[[0, *breaks]].tolist(), stops[[*(breaks - 1), -1]].tolist(), strict=True):
        yield start, min(stop, layout.size) - start
