"""The part of preparing that several processes do at once: read, shape, count, write to the samples' places.

Each process opens the reader itself and is sent numbers of samples; what it answers is short. Nothing here needs torch,
so that processes start quickly.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from minga.base.process_pool import Pool
from minga.data.formats import Origin, open_reader
from minga.data.formats.base import BadSample, RawSample, Reader, kept_form
from minga.data.prepared.shard_file import Field
from minga.data.preparing.shards import ShardPlaces, ShardWriter
from minga.data.preparing.statistics import MeanAndDeviation
from minga.errors import DataError, RunError

__all__ = ["Chunk", "ChunkOutcome", "ShardJob", "do_all", "outline_of"]

_TRAIN = 0


@dataclass(frozen=True)
class Chunk:
    """Samples by their number in the original, and where they go."""

    indices: NDArray[np.int64]
    parts: NDArray[np.int8]
    positions: NDArray[np.int64]


@dataclass(frozen=True)
class ChunkOutcome:
    """What became of a chunk."""

    samples: int
    moments: MeanAndDeviation | None
    """Of the training inputs."""
    bad: list[tuple[int, str, str]]
    """Number, name and what is wrong."""


@dataclass(frozen=True)
class ShardJob:
    """What is to be done with every sample."""

    places: ShardPlaces
    scale: float
    """What whole numbers are multiplied by where inputs become fractions."""
    moments: bool
    """Whether to compute them."""
    outline: str
    """Of the whole data set, as it was when samples were given their places; see `outline_of`."""


def outline_of(reader: Reader) -> str:
    """How many samples there are, and of which classes: the same wherever the same data set is opened."""
    labels = b"" if reader.labels is None else reader.labels.tobytes()
    return hashlib.sha256(json.dumps([len(reader), *reader.classes]).encode() + labels).hexdigest()


def do_all(
    job: ShardJob, origin: Origin, reader: Reader, chunks: Sequence[Chunk], *, jobs: int
) -> Iterator[ChunkOutcome]:
    """What became of each chunk, in their order."""
    if jobs == 1:
        worker = _Worker(job, reader)
        every = np.concatenate([chunk.indices for chunk in chunks]) if chunks else np.empty(0, dtype=np.int64)
        samples = reader.samples(every.tolist())
        for chunk in chunks:
            yield worker.do(chunk, samples)
        worker.writer.close()
        return
    with Pool(jobs, _begin, (origin, job)) as pool:
        ahead: list[Future[ChunkOutcome]] = []
        waiting = iter(chunks)
        try:
            while True:
                ahead += [pool.submit(_do, chunk) for chunk in itertools.islice(waiting, 3 * jobs - len(ahead))]
                if not ahead:
                    return
                yield ahead.pop(0).result()
        except BrokenProcessPool:
            raise RunError(
                "a process that prepared samples was killed, perhaps for want of memory; use fewer with --jobs"
            ) from None


class _Worker:
    """Reads, shapes and writes samples."""

    def __init__(self, job: ShardJob, reader: Reader) -> None:
        self.job = job
        self.reader = reader
        self.outline = outline_of(reader)
        self.writer = ShardWriter(job.places)

    def do(self, chunk: Chunk, samples: Iterator[RawSample | BadSample]) -> ChunkOutcome:
        """`samples`: those of the chunk come next."""
        bad: list[tuple[int, str, str]] = []
        trained: list[NDArray[np.generic]] = []
        wanted, scale = self.job.places.fields, self.job.scale
        for index, part, position in zip(chunk.indices.tolist(), chunk.parts, chunk.positions.tolist(), strict=True):
            sample = next(samples, None) or BadSample("it is not there any more")
            problem = str(sample) if isinstance(sample, BadSample) else _problem(sample, wanted)
            if problem is not None:
                bad.append((index, self.reader.name_of(index), problem))
                continue
            assert not isinstance(sample, BadSample)
            kept = {name: kept_form(name, sample[name], each.dtype, scale) for name, each in wanted.items()}
            if not np.isfinite(kept["inputs"]).all():
                raise DataError(
                    f"{self.reader.name_of(index)} has values that {wanted['inputs'].dtype} can't hold; use --dtype "
                    "float32"
                )
            self.writer.write(int(part), position, kept)
            if self.job.moments and part == _TRAIN:
                trained.append(kept["inputs"])
        moments = MeanAndDeviation.of(trained, scale if wanted["inputs"].dtype == "uint8" else 1.0)
        return ChunkOutcome(len(chunk.indices), moments, bad)


def _problem(sample: RawSample, wanted: Mapping[str, Field]) -> str | None:
    """What does not fit, in words."""
    for name, field in wanted.items():
        values = np.asarray(sample[name])
        if values.shape != field.shape:
            return f"its {name} are {'x'.join(map(str, values.shape))} instead of {'x'.join(map(str, field.shape))}"
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            return f"its {name} have NaN or infinite values"
    return None


_worker: _Worker | None = None
"""In a process of its own."""


def _begin(origin: Origin, job: ShardJob) -> None:
    global _worker
    _worker = _Worker(job, open_reader(origin))


def _do(chunk: Chunk) -> ChunkOutcome:
    assert _worker is not None
    reader = _worker.reader
    if _worker.outline != _worker.job.outline:
        raise DataError(
            f"there are {len(reader):,} samples of {len(reader.classes):,} classes now, and they are not those from "
            "before: somebody changes the data set; prepare it again when nobody does"
        )
    return _worker.do(chunk, reader.samples(chunk.indices.tolist()))
