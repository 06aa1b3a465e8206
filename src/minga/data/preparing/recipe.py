"""What is done to a data set when it is prepared, besides what its reader does."""

from __future__ import annotations

import re
from dataclasses import dataclass

from minga.errors import DataError, unknown

__all__ = ["Recipe", "parse_size"]

_DTYPES = ("uint8", "float16", "float32")
# Of a side, in pixels: what is larger is a slip of the finger rather than a picture to train on.
_MOST_PIXELS = 16_384
_SIZE = re.compile("[0-9]{1,9}[xX][0-9]{1,9}")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How samples are kept, and which go where."""

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


def parse_size(text: str) -> tuple[int, int]:
    """`197x148`: width and height."""
    sides = [int(side) for side in text.lower().split("x")] if _SIZE.fullmatch(text) else []
    if not sides or not all(0 < side <= _MOST_PIXELS for side in sides):
        raise DataError(
            f"--resize {text!r} should be WIDTHxHEIGHT, each from 1 to {_MOST_PIXELS:,} pixels, such as 197x148"
        )
    return sides[0], sides[1]
