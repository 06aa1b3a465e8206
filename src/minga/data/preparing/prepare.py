"""A prepared set made of a data set in its original form.

    prepare(Origin(reader="pictures", path="fish"), Path("prepared/fish"), Recipe(dtype="float16", normalise=True))

It is made in a folder beside and renamed when it is whole. Memory stays the same however large the data set is: samples
go one by one to their places, and only a few bytes of each (its class, its place) are kept.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from minga.data.checksums import digest_of
from minga.data.directory import check_space
from minga.data.formats import Origin, open_reader
from minga.data.formats.base import PARTS, BadSample, Reader
from minga.data.prepared.manifest import (
    MANIFEST,
    SKIPPED,
    Normalisation,
    PreparedManifest,
    PreparedPart,
    ShardFile,
    Shuffle,
)
from minga.data.prepared.shard_file import Field, record_bytes
from minga.data.preparing.folder import check_free, new_folder
from minga.data.preparing.shard_job import Chunk, ShardJob, do_all, outline_of
from minga.data.preparing.shards import ShardPlaces
from minga.data.preparing.statistics import MeanAndDeviation
from minga.data.progress import NO_PROGRESS, ProgressDisplay
from minga.data.sources import KnownDataset
from minga.data.split import Split, divide
from minga.errors import DataError, unknown

__all__ = ["Recipe", "parse_size", "prepare"]

_DTYPES = ("uint8", "float16", "float32")
# Of a side, in pixels: what is larger is a slip of the finger rather than a picture to train on.
_MOST_PIXELS = 16_384
_SIZE = re.compile("[0-9]{1,9}[xX][0-9]{1,9}")
_DEFAULT_SPLIT = (0.8, 0.1, 0.1)
_CHUNK_BYTES = 2 << 20
_MOST_IN_A_CHUNK = 1024
_WORTH_PROCESSES = 512
# From this size on an epoch's order goes by blocks: what is smaller is usually in memory after the first epoch.
_LARGE_BYTES = 256 << 20
_BLOCK_BYTES = 1 << 20
_WINDOW_BLOCKS = 64


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is done to a data set besides what its reader does: how samples are kept, and which go where."""

    dtype: str | None = None
    """Of inputs on disk: uint8, float16 (0 to 1 for pictures) or float32; None: as they come."""

    normalise: bool = False
    """Whether readers subtract the mean and divide by the deviation; both are computed from the training part."""

    split: tuple[float, float, float] | None = None
    """Fractions for train, validation and test; None: the parts that the data set has, or 80, 10 and 10 %."""

    seed: int = 0
    """Decides the split and the order on disk."""

    shard_bytes: int = 64 << 20
    """About how large a file gets."""

    jobs: int | None = None
    """Processes that read and shape; None: one per core where that is worth it."""

    def __post_init__(self) -> None:
        if self.dtype is not None and self.dtype not in _DTYPES:
            raise unknown("dtype", self.dtype, _DTYPES)
        if self.shard_bytes < 1 << 10:
            raise DataError(f"shards of {self.shard_bytes} bytes are too small; give at least 1,024")
        if self.jobs is not None and self.jobs < 1:
            raise DataError(f"jobs should be at least 1, not {self.jobs}")


def prepare(
    origin: Origin,
    out: Path,
    recipe: Recipe,
    *,
    known: KnownDataset | None = None,
    replace: bool = False,
    progress: ProgressDisplay = NO_PROGRESS,
) -> PreparedManifest:
    """Make the prepared set `out`. `known`: what `origin` is of; `replace`: also where another prepared set is."""
    check_free(out, replace=replace)
    reader = open_reader(origin)
    if recipe.normalise and reader.in_order:
        raise DataError("characters of a text are names, not amounts: they can't be normalised; leave out --normalise")
    fractions = recipe.split or (None if reader.given_parts is not None else _DEFAULT_SPLIT)
    split = divide(
        reader.labels,
        count=len(reader),
        fractions=fractions,
        given=reader.given_parts,
        seed=recipe.seed,
        in_order=reader.in_order,
    )
    reader.learn_from(np.flatnonzero(split.part == PARTS.index("train")))
    fields = _fields_of(reader, split, recipe)
    with new_folder(out, replace=replace) as folder:
        places = ShardPlaces.of(folder, fields, split.counts, recipe.shard_bytes)
        remedy = "choose another with --out, smaller pictures with --resize, or --dtype uint8"
        check_space("the prepared set", out.parent, places.bytes, remedy)
        places.make_files()
        job = ShardJob(places, reader.scale, moments=recipe.normalise, outline=outline_of(reader))
        moments: MeanAndDeviation | None = None
        bad: list[tuple[int, str, str]] = []
        with progress.task("preparing", total=sum(split.counts), unit="samples") as advance:
            chunks = _chunks(reader, split, record_bytes(fields))
            for done in do_all(job, origin, reader, chunks, jobs=_jobs(recipe, reader)):
                advance(done.samples)
                moments = done.moments if moments is None else moments.joined(done.moments)
                bad += done.bad
        places = places.without({(int(split.part[index]), int(split.position[index])) for index, _, _ in bad})
        if not places.counts[0]:
            raise DataError(f"no sample is left to train on: {len(bad):,} of {len(reader):,} could not be used")
        _write_skipped(folder, bad)
        parts = _parts(places, reader, split, {index for index, _, _ in bad}, progress)
        normalisation = None
        if moments is not None:
            mean, deviation = tuple(moments.mean.tolist()), tuple(moments.deviation.tolist())
            normalisation = Normalisation(mean=mean, deviation=deviation)
        manifest = PreparedManifest(
            name=Path(origin.path).stem if known is None else known.name,
            fields=fields,
            parts=parts,
            classes=tuple(reader.classes),
            scale=reader.scale if fields["inputs"].dtype == "uint8" else 1.0,
            normalisation=normalisation,
            shuffle=_shuffle(record_bytes(fields), places.counts[0]),
            skipped=len(bad),
            facts=reader.facts,
            recipe={
                **dataclasses.asdict(recipe),
                "split": list(fractions) if fractions is not None else "as given",
                "picture": dataclasses.asdict(origin.picture),
            },
            provenance={
                "reader": origin.reader,
                "from": Path(origin.path).name,
                "samples": len(reader),
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
                "minga": version("minga"),
            },
            licence="unknown" if known is None else known.licence,
            citation="" if known is None else known.citation,
        )
        (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    return manifest


def _fields_of(reader: Reader, split: Split, recipe: Recipe) -> dict[str, Field]:
    """Types and shapes, as the first sample that can be used has them."""
    chosen = np.flatnonzero(split.part >= 0)
    problem = "there are none"
    for sample in reader.samples(chosen.tolist()):
        if isinstance(sample, BadSample):
            problem = str(sample)
            continue
        fields = {name: Field(str(values.dtype), tuple(values.shape)) for name, values in sample.items()}
        if recipe.dtype is not None:
            if recipe.dtype == "uint8" and fields["inputs"].dtype != "uint8":
                raise DataError(
                    f"inputs of type {fields['inputs'].dtype} can't be kept as uint8; use float16 or float32"
                )
            if not reader.in_order:  # numbers of characters stay whole
                fields["inputs"] = Field(recipe.dtype, fields["inputs"].shape)
        return fields
    raise DataError(f"not a single sample can be used: {problem}")


def _chunks(reader: Reader, split: Split, nbytes: int) -> list[Chunk]:
    """In the order in which they lie on disk afterwards, or in which they can be read."""
    chosen = np.flatnonzero(split.part >= 0)
    if reader.any_order:
        chosen = chosen[np.lexsort((split.position[chosen], split.part[chosen]))]
    step = max(1, min(_MOST_IN_A_CHUNK, _CHUNK_BYTES // max(1, nbytes)))
    pieces = [chosen[start : start + step] for start in range(0, len(chosen), step)]
    return [Chunk(piece, split.part[piece], split.position[piece]) for piece in pieces]


def _jobs(recipe: Recipe, reader: Reader) -> int:
    if not reader.any_order:
        return 1
    if recipe.jobs is not None:
        return recipe.jobs
    return 1 if len(reader) < _WORTH_PROCESSES or not reader.costly else max(1, len(os.sched_getaffinity(0)))


def _write_skipped(folder: Path, bad: Sequence[tuple[int, str, str]]) -> None:
    with (folder / SKIPPED).open("w", encoding="utf-8") as file:
        for index, name, problem in sorted(bad):
            file.write(json.dumps({"sample": index, "name": name, "problem": problem}) + "\n")


def _parts(
    places: ShardPlaces, reader: Reader, split: Split, bad: set[int], progress: ProgressDisplay
) -> dict[str, PreparedPart]:
    parts = {}
    with progress.task("computing checksums", total=places.bytes, unit="bytes") as advance:
        for part, files in enumerate(places.shards):
            shards = []
            for path, layout in files:
                size, digest = digest_of(path, advance=advance)
                shards.append(ShardFile(file=path.name, samples=layout.samples, bytes=size, sha256=digest))
            if shards:
                classes = _balance(reader, split, part, bad)
                parts[PARTS[part]] = PreparedPart(samples=places.counts[part], classes=classes, shards=tuple(shards))
    return parts


def _balance(reader: Reader, split: Split, part: int, bad: set[int]) -> Mapping[str, int]:
    if reader.labels is None:
        return {}
    members: NDArray[np.bool_] = split.part == part
    members[list(bad)] = False
    counts = np.bincount(reader.labels[members & (reader.labels >= 0)], minlength=len(reader.classes))
    return {name: int(count) for name, count in zip(reader.classes, counts, strict=True)}


def _shuffle(nbytes: int, samples: int) -> Shuffle | None:
    if nbytes * samples < _LARGE_BYTES:
        return None
    return Shuffle(block=max(1, _BLOCK_BYTES // nbytes), window=_WINDOW_BLOCKS)


def parse_size(text: str) -> tuple[int, int]:
    """`197x148`: width and height."""
    sides = [int(side) for side in text.lower().split("x")] if _SIZE.fullmatch(text) else []
    if not sides or not all(0 < side <= _MOST_PIXELS for side in sides):
        raise DataError(
            f"--resize {text!r} should be WIDTHxHEIGHT, each from 1 to {_MOST_PIXELS:,} pixels, such as 197x148"
        )
    return sides[0], sides[1]
