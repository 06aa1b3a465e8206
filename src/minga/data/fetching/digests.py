"""Hashes of files, of what is in them when they are packed, and whether that is what it should be.

check_file(Path("train-images-idx3-ubyte.gz"), known_file)     # None, or what is wrong with it
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from minga.data.sources import KnownArchive, KnownFile

__all__ = ["check_file", "digest_of", "mismatch", "pieces_of"]

_PIECE = 1 << 20


def pieces_of(path: Path, *, packed: bool = False) -> Iterator[bytes]:
    """The content of a file, piece by piece; `packed`: what is in a `.gz`."""
    with gzip.open(path, "rb") if packed else path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def digest_of(
    path: Path,
    algorithm: str = "sha256",
    *,
    packed: bool = False,
    advance: Callable[[int], None] = lambda done: None,
) -> tuple[int, str]:
    """Bytes and hash of a file, or of what is in a `.gz`."""
    digest, size = hashlib.new(algorithm, usedforsecurity=False), 0
    for piece in pieces_of(path, packed=packed):
        digest.update(piece)
        size += len(piece)
        advance(len(piece))
    return size, digest.hexdigest()


def check_file(
    path: Path,
    known: KnownFile | KnownArchive,
    *,
    packed: bool | None = None,
    advance: Callable[[int], None] = lambda done: None,
) -> str | None:
    """What is wrong with a file, in words; None: nothing, or nothing is known of it.

    `packed`: whether it is a `.gz` of what is known; by default its name tells.
    """
    algorithm = "sha256" if known.sha256 is not None else "md5"
    expected = known.sha256 or known.md5
    if packed is None:
        packed = path.name == f"{known.name}.gz"
    if not packed and known.bytes is not None and path.stat().st_size != known.bytes:
        return f"it has {path.stat().st_size:,} bytes instead of {known.bytes:,}"
    if expected is None:
        return None
    try:
        size, digest = digest_of(path, algorithm, packed=packed, advance=advance)
    except (OSError, EOFError, zlib.error) as error:
        return f"it can't be read: {error}"
    if known.bytes is not None and size != known.bytes:
        return f"it has {size:,} bytes{' when unpacked' if packed else ''} instead of {known.bytes:,}"
    return mismatch(algorithm, digest, expected)


def mismatch(algorithm: str, digest: str, expected: str) -> str | None:
    """In words; None if they are the same."""
    if digest == expected:
        return None
    return f"its {algorithm} is {digest[:16]}... instead of {expected[:16]}..."
