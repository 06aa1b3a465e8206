"""Records in a file: JSON and bytes, with lengths before and a SHA-256 over both.

    write_record(file, {"kind": "update"}, [memoryview(content)])
    facts, content = read_record(file)               # ProtocolError where it is cut off or was changed

Whatever a killed process had not finished is at the end of a file and can be told from what is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Sequence
from typing import Any, BinaryIO

from minga.errors import ProtocolError

__all__ = ["read_facts", "read_record", "write_record"]

_HEAD = struct.Struct("<4sQQ32s")
_MAGIC = b"MgR1"
_LONGEST_TEXT = 64 << 20


def write_record(file: BinaryIO, facts: dict[str, Any], pieces: Sequence[bytes | memoryview]) -> int:
    """Append a record to an unbuffered file; its size. When it returns, the kernel has all of it."""
    text = json.dumps(facts, separators=(",", ":")).encode()
    digest = hashlib.sha256(text)
    for piece in pieces:
        digest.update(piece)
    size = sum(len(piece) for piece in pieces)
    head = _HEAD.pack(_MAGIC, len(text), size, digest.digest()) + text
    for content in (head, *pieces):
        view = memoryview(content)
        while len(view):  # one call may write less than asked for
            view = view[file.write(view) :]
    return len(head) + size


def read_record(file: BinaryIO) -> tuple[dict[str, Any], bytes] | None:
    """The next record, or None at the end of the file."""
    found = _head(file)
    if found is None:
        return None
    text, size, digest = found
    content = file.read(size)
    found_digest = hashlib.sha256(text)
    found_digest.update(content)
    if found_digest.digest() != digest:
        raise ProtocolError("a record was changed: its SHA-256 is another")
    return _facts(text), content


def read_facts(file: BinaryIO) -> dict[str, Any] | None:
    """The next record's JSON alone, unchecked; None at the end of the file."""
    found = _head(file)
    if found is None:
        return None
    file.seek(found[1], os.SEEK_CUR)
    return _facts(found[0])


def _head(file: BinaryIO) -> tuple[bytes, int, bytes] | None:
    head = file.read(_HEAD.size)
    if not head:
        return None
    left = os.fstat(file.fileno()).st_size - file.tell()
    if len(head) < _HEAD.size:
        raise ProtocolError("a record is cut off")
    magic, length, size, digest = _HEAD.unpack(head)
    if magic != _MAGIC or length > _LONGEST_TEXT:
        raise ProtocolError("this is no record")
    if length + size > left:
        raise ProtocolError("a record is cut off")
    return file.read(length), size, digest


def _facts(text: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a record's facts are no JSON: {error}") from None
    if not isinstance(facts, dict):
        raise ProtocolError("a record's facts are no table")
    return facts
