"""A shard on disk: snapshots, and after each one a log of the updates since.

    files = ShardFiles(run / "servers" / "server-0")
    files.write_snapshot(1, facts, tensors); files.open_log(1); files.append(facts, gradients)
    facts, tensors = files.read_snapshot(1); for facts, content in files.records(1): ...

`snapshot-000002` begins where `log-000001` ends. Snapshots are there as a whole or not at all. Nothing is synced: what
the kernel has survives the process, and what a power cut takes is noticed.

Files that are not needed any more are kept as spare ones, and written over: that takes as long as a copy in memory,
while the kernel needs several times as long to find new pages for a new file. So what follows the last record may be an
older one: each has the number of its file's turn. It is JSON and bytes, with lengths before and a digest over both, so
that what a killed process had not finished, at the end of a file too, can be distinguished from what is whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import os
import shutil
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from minga.base.lazy import Tensor, torch
from minga.errors import ProtocolError
from minga.model.blob import parse, pieces_of

__all__ = ["ShardFiles", "read_record", "write_record"]

_LOG = logging.getLogger("minga.strategies.parameter_server")
# Magic, number, bytes of text, bytes of content.
_HEAD = struct.Struct("<4sQQQ")
_MAGIC = b"MgR2"
_DIGEST_BYTES = hashlib.sha256().digest_size
_LONGEST_TEXT = 64 << 20
_PAGE_BYTES = 4096


class ShardFiles:
    """The files of one server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log_bytes = 0
        """Of the log that is being written."""
        self._log: BinaryIO | None = None
        self._number = 0
        """Of that log."""

    def numbers(self) -> list[int]:
        """Of the snapshots there are, the oldest first."""
        return sorted(self._numbered("snapshot"))

    @property
    def last_number(self) -> int:
        """The highest that a snapshot or a log has; 0 if there is none."""
        return max([*self._numbered("snapshot"), *self._numbered("log")], default=0)

    def _numbered(self, kind: str) -> dict[int, Path]:
        return {int(path.name.removeprefix(f"{kind}-")): path for path in self.folder.glob(f"{kind}-??????")}

    def write_snapshot(self, number: int, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> int:
        """All of it or nothing; its size."""
        self.folder.mkdir(parents=True, exist_ok=True)
        spare = self._spare("snapshot")
        try:
            with _open_to_write_over(spare) as file:
                blob = list(pieces_of(tensors, {"minga": json.dumps(facts)}))
                size = write_record(file, number, {"kind": "snapshot"}, blob)
                file.truncate()
            spare.replace(self._path("snapshot", number))
        except BaseException:
            with contextlib.suppress(OSError):
                spare.unlink(missing_ok=True)
            raise
        return size

    def read_snapshot(self, number: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        path = self._path("snapshot", number)
        try:
            with path.open("rb") as file:
                found = read_record(file, number)
        except OSError as error:
            raise ProtocolError(f"can't read {path}: {error.strerror}") from None
        if found is None:
            raise ProtocolError(f"{path} is empty")
        tensors, metadata = parse(found[1])
        facts = json.loads(metadata["minga"])
        assert isinstance(facts, dict)  # its hash was right, so this program has written it
        return facts, tensors

    def open_log(self, number: int) -> None:
        """From now on, records go here."""
        self.close()
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path("log", number)
        with contextlib.suppress(FileNotFoundError):
            self._spare("log").replace(path)
        self._log, self._number = _open_to_write_over(path), number
        self.log_bytes = 0

    def append(self, facts: dict[str, Any], gradients: Sequence[Tensor] = ()) -> None:
        """When it returns, the kernel has it."""
        assert self._log is not None
        pieces = [memoryview(_bytes_of(tensor).numpy()) for tensor in gradients if tensor.numel()]  # type: ignore[arg-type]
        self.log_bytes += write_record(self._log, self._number, facts, pieces)

    def all_facts(self, number: int) -> Iterator[dict[str, Any]]:
        """Of the records from this snapshot on, as far as they are whole."""
        for turn, path in self._logs(number):
            with contextlib.suppress(ProtocolError), path.open("rb") as file:
                while (record := read_record(file, turn, facts_only=True)) is not None:
                    yield record[0]

    def records(self, number: int) -> Iterator[tuple[dict[str, Any], bytes]]:
        """From this snapshot on, until the end or the first that is not whole."""
        logs = self._logs(number)
        for turn, path in logs:
            with path.open("rb") as file:
                try:
                    while (record := read_record(file, turn)) is not None:
                        yield record
                except ProtocolError as error:
                    if turn != logs[-1][0]:  # the last one ends like this when its process was killed
                        _LOG.warning("%s: %s; what comes after it is lost", path, error)
                    return

    def _logs(self, number: int) -> list[tuple[int, Path]]:
        """From this snapshot on, until one is missing."""
        found = self._numbered("log")
        end = next(each for each in itertools.count(number) if each not in found)
        return [(each, found[each]) for each in range(number, end)]

    def remove_before(self, number: int) -> None:
        """Snapshots and logs that are older than this snapshot; one of each is kept to be written over."""
        for kind in ("snapshot", "log"):
            for each, path in self._numbered(kind).items():
                if each < number:
                    path.replace(self._spare(kind))

    def _path(self, kind: str, number: int) -> Path:
        return self.folder / f"{kind}-{number:06d}"

    def _spare(self, kind: str) -> Path:
        return self.folder / f"spare-{kind}"

    def close(self) -> None:
        if self._log is not None:
            with contextlib.suppress(OSError):
                self._log.truncate()  # what follows is of another turn
            self._log.close()
            self._log = None

    def remove(self) -> None:
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _open_to_write_over(path: Path) -> BinaryIO:
    """From its beginning; its old content stays until it is written over."""
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)


def _bytes_of(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


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


def read_record(file: BinaryIO, number: int, *, facts_only: bool = False) -> tuple[dict[str, Any], bytes] | None:
    """The next record, or None at the end of the file. `facts_only`: content is passed over, and then not checked."""
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
    digest, text = file.read(_DIGEST_BYTES), file.read(length)
    facts, lengths = _parse(text)
    if sum(lengths) != size:
        raise ProtocolError("a record was changed: its lengths are others")
    if facts_only and size:
        file.seek(size, os.SEEK_CUR)
        return facts, b""
    content = file.read(size)
    if _digest(head + text, _cut(content, lengths)) != digest:
        raise ProtocolError("a record was changed: its digest is another")
    return facts, content


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


def _parse(text: bytes) -> tuple[dict[str, Any], list[int]]:
    try:
        facts, lengths = json.loads(text)
        lengths = [int(length) for length in lengths]
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(f"a record's facts are no JSON: {error}") from None
    if not isinstance(facts, dict):
        raise ProtocolError("a record's facts are no table")
    return facts, lengths
