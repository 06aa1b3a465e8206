"""The files that samples lie in: safetensors, all samples of a field one after the other, so that each has its place.

    layout = ShardLayout.of({"inputs": Field("uint8", (1, 28, 28)), "targets": Field("int64", ())}, samples=1000)
    file.write(layout.header); layout.place("inputs", 17)       # (offset, bytes)

Nothing in such a file can run, any library for safetensors reads it, and a sample is found without reading others.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from minga.errors import DataError

__all__ = ["TYPES", "Field", "ShardLayout", "record_bytes"]

TYPES = {"uint8": "U8", "int32": "I32", "int64": "I64", "float16": "F16", "float32": "F32", "float64": "F64"}
_ALIGNMENT = 64


@dataclass(frozen=True)
class Field:
    """What each sample has of it."""

    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype not in TYPES:
            raise DataError(f"samples of type {self.dtype} can't be kept; those that can: {', '.join(TYPES)}")

    @property
    def bytes(self) -> int:
        return np.dtype(self.dtype).itemsize * math.prod(self.shape)


def record_bytes(fields: Mapping[str, Field]) -> int:
    """Of one sample."""
    return sum(field.bytes for field in fields.values())


@dataclass(frozen=True)
class ShardLayout:
    """Where everything is in a shard of so many samples."""

    fields: Mapping[str, Field]
    samples: int
    header: bytes
    starts: Mapping[str, int]
    """The first byte of each field in the file."""
    size: int
    """Bytes of the file."""

    @classmethod
    def of(cls, fields: Mapping[str, Field], samples: int) -> ShardLayout:
        table: dict[str, object] = {"__metadata__": {"format": "minga prepared set"}}
        at, offsets = 0, {}
        # The widest types first, so that everything is aligned.
        for name, field in sorted(fields.items(), key=lambda pair: (-np.dtype(pair[1].dtype).itemsize, pair[0])):
            nbytes = samples * field.bytes
            table[name] = {
                "dtype": TYPES[field.dtype],
                "shape": [samples, *field.shape],
                "data_offsets": [at, at + nbytes],
            }
            offsets[name] = at
            at += nbytes
        text = json.dumps(table, separators=(",", ":")).encode()
        text += b" " * (-(8 + len(text)) % _ALIGNMENT)
        start = 8 + len(text)
        starts = {name: start + offset for name, offset in offsets.items()}
        return cls(fields, samples, struct.pack("<Q", len(text)) + text, starts, start + at)

    def place(self, name: str, row: int) -> tuple[int, int]:
        """The first byte of one sample's field in the file, and how many there are."""
        nbytes = self.fields[name].bytes
        return self.starts[name] + row * nbytes, nbytes
