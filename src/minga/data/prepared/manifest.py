"""What a prepared set says of itself: `manifest.json`.

manifest = PreparedManifest.load(Path("prepared/fish"))
manifest.parts["train"].samples, manifest.classes, manifest.normalisation
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import ConfigDict, TypeAdapter

from minga.data.checksums import FileCheck
from minga.data.prepared.shard_file import Field, ShardLayout
from minga.data.progress import NO_PROGRESS, ProgressDisplay
from minga.errors import DataError

__all__ = [
    "FORMAT",
    "MANIFEST",
    "SKIPPED",
    "Normalisation",
    "PreparedManifest",
    "PreparedPart",
    "ShardFile",
    "Shuffle",
    "is_prepared",
    "verify_prepared",
]

FORMAT = 1
MANIFEST = "manifest.json"
SKIPPED = "skipped.jsonl"


@dataclass(frozen=True, kw_only=True)
class ShardFile:
    """A file with some samples."""

    file: str
    samples: int
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class PreparedPart:
    """The samples to train on, to validate with, or to test with."""

    samples: int
    classes: Mapping[str, int]
    """How many there are of each class; empty where there are none."""
    shards: tuple[ShardFile, ...]


@dataclass(frozen=True, kw_only=True)
class Normalisation:
    """Mean and standard deviation of the training part's inputs, after `scale`; per channel, or per column."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Shuffle:
    """How an epoch's order is drawn where all of it in any order would be slow: the same for all ranks."""

    block: int
    """Samples that lie one after the other and are read together."""
    window: int
    """Blocks whose samples are shuffled with each other."""


@dataclass(frozen=True, kw_only=True)
class PreparedManifest:
    """A prepared set."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: str
    fields: Mapping[str, Field]
    parts: Mapping[str, PreparedPart]
    classes: tuple[str, ...] = ()
    scale: float = 1.0
    """What whole numbers in `inputs` are multiplied by before use."""
    normalisation: Normalisation | None = None
    shuffle: Shuffle | None = None
    skipped: int = 0
    """Samples that could not be used; `skipped.jsonl` has each with its reason."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Columns, a vocabulary: what is particular to the kind of data."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """How it was prepared, with split and seed."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    licence: str = "unknown"
    citation: str = ""

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n"

    def layout(self, shard: ShardFile) -> ShardLayout:
        return ShardLayout.of(self.fields, shard.samples)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read and check it."""
        path = folder / MANIFEST
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
            if table["format"] != FORMAT:
                raise DataError(f"{path} has format {table['format']!r}; this version of minga reads {FORMAT}")
            del table["format"]
            manifest = TypeAdapter(cls).validate_python(table)
        except FileNotFoundError:
            raise DataError(f"{folder} is no prepared set: it has no {MANIFEST}; see minga data prepare") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{path} is damaged ({error}); prepare the data set again") from None
        manifest._check(folder)
        return manifest

    def _check(self, folder: Path) -> None:
        for name, part in self.parts.items():
            if sum(shard.samples for shard in part.shards) != part.samples:
                raise DataError(f"{folder / MANIFEST} is damaged: the shards of {name} don't add up to its samples")
            for shard in part.shards:
                if Path(shard.file).name != shard.file or self.layout(shard).size != shard.bytes:
                    raise DataError(f"{folder / MANIFEST} is damaged: {shard.file!r} can't be as it says")


def is_prepared(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def verify_prepared(folder: Path, *, progress: ProgressDisplay = NO_PROGRESS) -> list[FileCheck]:
    """Read all shards and compare their checksums."""
    try:
        manifest = PreparedManifest.load(folder)
    except DataError as error:
        return [FileCheck(MANIFEST, "damaged", str(error))]
    shards = [shard for part in manifest.parts.values() for shard in part.shards]
    with progress.task(f"verifying {folder.name}", total=sum(each.bytes for each in shards), unit="bytes") as advance:
        of_shards = [FileCheck.of(each.file, folder / each.file, each.bytes, each.sha256, advance) for each in shards]
    return [FileCheck(MANIFEST, "whole"), *of_shards]
