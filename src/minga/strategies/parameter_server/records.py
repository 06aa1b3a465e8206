"""Records in a file: JSON and bytes, with lengths before and a digest over both.

    write_record(file, 7, {"kind": "update"}, [memoryview(content)])
    facts, content = read_record(file, 7)            # ProtocolError where it is cut off or was changed

Files are written over again, so what follows the last record may be an older one: each has the number of its file's
turn. Whatever a killed process had not finished is at the end of a file too, and can be distinguished from what is
whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

import numpy as np

from minga.errors import ProtocolError

__all__ = ["read_facts", "read_record", "write_record"]

# Magic, number, bytes of text, bytes of content.
_HEAD = struct.Struct("<4sQQQ")
_MAGIC = b"MgR2"
_DIGEST_BYTES = hashlib.sha256().digest_size
_LONGEST_TEXT = 64 << 20
_PAGE_BYTES = 4096


def write_record(file: BinaryIO, number: int, facts: dict[str, Any], pieces: Sequence[bytes | memoryview] = ()) -> int:
    """Write a record to an unbuffered file; its size. When it returns, the kernel has all of it."""
    lengths = [len(piece) for piece in pieces]
    text = json.dumps([facts, lengths], separators=(",", ":")).encode()
    head = _HEAD.pack(_MAGIC, number, len(text), sum(lengths))
    start = head + _digest(head + text, pieces) + text
    for content in (start, *pieces):
        view = memoryview(content)
        while len(view):  # one call may write less than asked for
            view = view[file.write(view) :]
    return len(start) + sum(lengths)


def read_record(file: BinaryIO, number: int) -> tuple[dict[str, Any], bytes] | None:
    """The next record, or None at the end of the file."""
    found = _start(file, number)
    if found is None:
        return None
    head, digest, text, size = found
    content = file.read(size)
    facts, lengths = _parse(text)
    if sum(lengths) != size:
        raise ProtocolError("a record was changed: its lengths are others")
    if _digest(head + text, _cut(content, lengths)) != digest:
        raise ProtocolError("a record was changed: its digest is another")
    return facts, content


def read_facts(file: BinaryIO, number: int) -> dict[str, Any] | None:
    """The next record's JSON alone, which is checked only where there is nothing else in it; None at the end."""
    found = _start(file, number)
    if found is None:
        return None
    head, digest, text, size = found
    if size == 0 and _digest(head + text) != digest:
        raise ProtocolError("a record was changed: its digest is another")
    file.seek(size, os.SEEK_CUR)
    return _parse(text)[0]


def _digest(start: bytes, pieces: Iterable[bytes | memoryview] = ()) -> bytes:
    """SHA-256 of the start, and of the sums of all pages of the content.

    A hash of all of it takes five times as long as to write it. What goes wrong with files is that pages are not
    there, or are of another time, and that changes their sums.
    """
    digest = hashlib.sha256(start)
    for piece in pieces:
        whole = len(piece) // _PAGE_BYTES * _PAGE_BYTES
        if whole:
            words = np.frombuffer(piece, dtype=np.uint64, count=whole // 8)
            digest.update(words.reshape(-1, _PAGE_BYTES // 8).sum(axis=1).tobytes())
        digest.update(memoryview(piece)[whole:])
    return digest.digest()


def _cut(content: bytes, lengths: Sequence[int]) -> Iterable[memoryview]:
    view = memoryview(content)
    for length in lengths:
        yield view[:length]
        view = view[length:]


def _start(file: BinaryIO, number: int) -> tuple[bytes, bytes, bytes, int] | None:
    """Head, digest, text and the size of what follows."""
    head = file.read(_HEAD.size)
    if not head:
        return None
    left = os.fstat(file.fileno()).st_size - file.tell() - _DIGEST_BYTES
    if left < 0:
        raise ProtocolError("a record is cut off")
    magic, turn, length, size = _HEAD.unpack(head)
    if magic != _MAGIC or length > _LONGEST_TEXT:
        raise ProtocolError("this is no record")
    if turn != number:
        raise ProtocolError(f"this is a record of turn {turn}, not of {number}")
    if length + size > left:
        raise ProtocolError("a record is cut off")
    return head, file.read(_DIGEST_BYTES), file.read(length), size


def _parse(text: bytes) -> tuple[dict[str, Any], list[int]]:
    try:
        facts, lengths = json.loads(text)
        lengths = [int(length) for length in lengths]
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(f"a record's facts are no JSON: {error}") from None
    if not isinstance(facts, dict):
        raise ProtocolError("a record's facts are no table")
    return facts, lengths
