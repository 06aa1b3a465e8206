"""A shard on disk: snapshots, and after each one a log of the updates since.

    files = ShardFiles(run / "servers" / "server-0")
    files.write_snapshot(1, facts, tensors); files.open_log(1); files.append(facts, gradients)
    facts, tensors = files.read_snapshot(1); for facts, content in files.records(1): ...

`snapshot-000002` begins where `log-000001` ends. Snapshots are there as a whole or not at all. Nothing is synced: what
the kernel has survives the process, and what a power cut takes is noticed.

Files that are not needed any more are kept as spare ones, and written over: that takes as long as a copy in memory,
while the kernel needs several times as long to find new pages for a new file.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from minga.base.lazy import Tensor, torch
from minga.errors import ProtocolError
from minga.model.blob import parse, pieces_of
from minga.strategies.parameter_server.records import read_facts, read_record, write_record

__all__ = ["ShardFiles"]

_LOG = logging.getLogger("minga.strategies.parameter_server")


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
        return sorted(int(path.name.removeprefix("snapshot-")) for path in self.folder.glob("snapshot-??????"))

    @property
    def last_number(self) -> int:
        """The highest that a snapshot or a log has; 0 if there is none."""
        return max((int(path.name.rpartition("-")[2]) for path in self.folder.glob("*-??????")), default=0)

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
                while (facts := read_facts(file, turn)) is not None:
                    yield facts

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
        found = {int(path.name.removeprefix("log-")): path for path in self.folder.glob("log-??????")}
        logs = []
        while number in found:
            logs.append((number, found[number]))
            number += 1
        return logs

    def remove_before(self, number: int) -> None:
        """Snapshots and logs that are older than this snapshot; one of each is kept to be written over."""
        for kind in ("snapshot", "log"):
            for path in self.folder.glob(f"{kind}-??????"):
                if int(path.name.removeprefix(f"{kind}-")) < number:
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
