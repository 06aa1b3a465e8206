"""A part of a prepared set as a data set of torch, which need not fit into memory.

    train = PreparedDataset("prepared/fish", "train")
    inputs, targets = train.read_batch(torch.tensor([5, 900, 17]))     # a batch at a time: fast
    inputs, targets = train[5]

Samples are read through memory maps (`maps.py`), so the system keeps in memory what there is room for and drops it when
others need the room. Nothing of a batch refers to the maps afterwards.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from minga.data.order import Blocks
from minga.data.prepared.manifest import PreparedManifest
from minga.data.prepared.maps import ShardMaps
from minga.errors import DataError, unknown

__all__ = ["PreparedDataset"]


class PreparedDataset(Dataset[tuple[Tensor, ...]]):
    """Samples of one part, as (inputs, targets); read a batch at a time, from any thread."""

    reads_ahead = 4
    """Batches that training reads ahead of the one it computes with."""

    def __init__(self, folder: str | Path, part: str = "train", *, normalise: bool | None = None) -> None:
        """`normalise`: by the training part's mean and deviation; None: if the set was prepared so."""
        self.folder = Path(folder).expanduser()
        self.manifest = PreparedManifest.load(self.folder)
        if part not in self.manifest.parts:
            raise unknown(f"part of {self.folder}", part, self.manifest.parts)
        self._shards = self.manifest.parts[part].shards
        for shard in self._shards:
            path = self.folder / shard.file
            if not path.is_file() or path.stat().st_size != shard.bytes:
                raise DataError(f"{path} is missing or cut; see minga data verify {self.folder}")
        self._starts = torch.tensor([0, *(shard.samples for shard in self._shards)]).cumsum(0)
        self._maps = ShardMaps(self.folder, self.manifest, self._shards)
        self._factor, self._shift = self._scaling(normalise)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.manifest.classes

    @property
    def blocks(self) -> Blocks | None:
        """How an order should be drawn so that neighbours on disk are read together; None: any order is fine.

        The manifest decides, not the memory of this machine: all ranks must draw the same order.
        """
        shuffle = self.manifest.shuffle
        return None if shuffle is None else Blocks(shuffle.block, shuffle.window)

    @property
    def fingerprint(self) -> str:
        """Of all samples, as the manifest has them: equal where the data is."""
        digests = "".join(shard.sha256 for shard in self._shards) + str(self.manifest.normalisation)
        return f"{len(self)} samples, {hashlib.sha256(digests.encode()).hexdigest()[:12]}"

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no sample {index} of {len(self)}")
        return tuple(tensor[0] for tensor in self.read_batch(torch.tensor([index % len(self)])))

    def __getitems__(self, indices: list[int]) -> list[tuple[Tensor, ...]]:
        """For torch's DataLoader, which puts samples together itself."""
        return list(zip(*self.read_batch(torch.tensor(indices)), strict=True))

    def read_batch(self, indices: Tensor) -> tuple[Tensor, ...]:
        """The samples at `indices` as one batch, ready for use."""
        raw = self.raw(indices)
        return tuple(self._ready(name, tensor) for name, tensor in raw.items())

    def raw(self, indices: Tensor) -> dict[str, Tensor]:
        """As they are on disk, field by field."""
        shard_of = torch.searchsorted(self._starts, indices, right=True) - 1
        wanted = torch.unique(shard_of).tolist()
        found: dict[str, Tensor] = {}
        for number in wanted:
            rows = None if len(wanted) == 1 else (shard_of == number).nonzero().squeeze(1)
            local = (indices if rows is None else indices[rows]) - self._starts[number]
            for name, values in self._maps.open(number, local).items():
                taken = values.index_select(0, local)
                if rows is None:
                    found[name] = taken
                    continue
                if name not in found:
                    found[name] = taken.new_empty(len(indices), *taken.shape[1:])
                found[name].index_copy_(0, rows, taken)
        self._maps.read(sum(tensor.nbytes for tensor in found.values()), len(indices))
        return {name: found[name] for name in self.manifest.fields}

    def _ready(self, name: str, tensor: Tensor) -> Tensor:
        if name != "inputs" or self._factor is None:  # as inputs, numbers of characters or of words
            return tensor.long() if not tensor.is_floating_point() else tensor.float()
        values = tensor.float().mul_(self._factor)
        return values if self._shift is None else values.add_(self._shift)

    def _scaling(self, normalise: bool | None) -> tuple[Tensor | float | None, Tensor | None]:
        """What inputs are multiplied by, and what is added then; None: they stay as they are."""
        manifest = self.manifest
        if normalise and manifest.normalisation is None:
            raise DataError(f"{self.folder} has no mean and deviation; prepare it with --normalise")
        if manifest.normalisation is None or normalise is False:
            return (None if manifest.scale == 1.0 else manifest.scale), None
        dimensions = len(manifest.fields["inputs"].shape)
        shape = (-1, *([1] * (dimensions - 1)))
        mean = torch.tensor(manifest.normalisation.mean, dtype=torch.float64)
        deviation = torch.tensor(manifest.normalisation.deviation, dtype=torch.float64)
        factor, shift = manifest.scale / deviation, -mean / deviation
        return factor.float().view(shape), shift.float().view(shape)
