"""Hashes of files, of what is in them when they are packed, and whether they are what they should be.

what_is_wrong(Path("train-images-idx3-ubyte"), size=47_040_016, digest="ba89...")      # None, or words
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from minga.data.packed import DAMAGE

__all__ = ["FileCheck", "digest_of", "what_is_wrong"]

_PIECE = 1 << 20


def _ignore(done: int) -> None: ...


@dataclass(frozen=True)
class FileCheck:
    """What was found of one file or folder."""

    name: str
    state: str
    """"whole"; "damaged", "missing" (both are wrong); "absent" (optional), "unchecked" (nobody knows its checksum)."""
    problem: str | None = None

    @property
    def wrong(self) -> bool:
        return self.state in ("damaged", "missing")

    @classmethod
    def of(cls, name: str, path: Path, size: int, digest: str, advance: Callable[[int], None] = _ignore) -> FileCheck:
        """Whether a file is there, and as it was written down."""
        if not path.is_file():
            return cls(name, "missing")
        problem = what_is_wrong(path, size=size, digest=digest, advance=advance)
        return cls(name, "whole" if problem is None else "damaged", problem)


def digest_of(
    path: Path, algorithm: str = "sha256", *, packed: bool = False, advance: Callable[[int], None] = _ignore
) -> tuple[int, str]:
    """Bytes and hash of a file, or of what is in a `.gz`."""
    digest, size = hashlib.new(algorithm, usedforsecurity=False), 0
    with gzip.open(path, "rb") if packed else path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            size += len(piece)
            advance(len(piece))
    return size, digest.hexdigest()


def what_is_wrong(
    path: Path,
    *,
    size: int | None,
    digest: str | None,
    algorithm: str = "sha256",
    packed: bool = False,
    advance: Callable[[int], None] = _ignore,
) -> str | None:
    """In words; None: nothing, or neither size nor hash of its content is known. `packed`: it is a `.gz` of that."""
    try:
        if not packed and size not in (None, path.stat().st_size):
            return f"it has {path.stat().st_size:,} bytes instead of {size:,}"
        if digest is None:
            return None
        found_size, found = digest_of(path, algorithm, packed=packed, advance=advance)
    except DAMAGE as error:
        return f"it can't be read: {getattr(error, 'strerror', None) or error}"
    if size not in (None, found_size):
        return f"it has {found_size:,} bytes{' when unpacked' if packed else ''} instead of {size:,}"
    return None if found == digest else f"its {algorithm} is {found[:16]}... instead of {digest[:16]}..."
