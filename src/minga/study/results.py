"""The results of a study on disk: one JSON line for each run that came to an end, well or not.

    results = Results(Path("studies/quito/results.jsonl"))
    results.append(Result(cell="1f...", repetition=0, state="done", run="runs/...", ...))

A line is on the disk before the next run begins, so whatever happens to the machine costs one run.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from minga.errors import ConfigError

__all__ = ["Result", "Results"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """One run of a cell."""

    cell: str
    """The cell's identity."""
    label: str
    values: Mapping[str, Any]
    environment: str | None
    repetition: int
    state: Literal["done", "failed"]
    error: str | None
    run: str | None
    """The run's directory, relative to the study's; None for a run that never got one."""
    wall_seconds: float
    """Starting, training, evaluating."""

    @property
    def identity(self) -> tuple[str, int]:
        return self.cell, self.repetition

    def __str__(self) -> str:
        return f"{self.label}, repetition {self.repetition + 1}"


_RESULT = TypeAdapter(Result)


class Results:
    """All lines of the file, and the way to add one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._length = 0
        self.lines = self._read()

    def append(self, result: Result) -> None:
        """Only for the one who has the study's lock."""
        is_new = not self._path.exists()
        with self._path.open("wb" if is_new else "r+b") as file:
            file.truncate(self._length)  # a line that was cut short
            file.seek(self._length)
            file.write(json.dumps(dataclasses.asdict(result)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
            self._length = file.tell()
        if is_new:
            _sync_directory(self._path.parent)
        self.lines.append(result)

    def latest(self) -> dict[tuple[str, int], Result]:
        """The last result of each run. One whose directory somebody removed counts as never run."""
        found = {line.identity: line for line in self.lines}
        return {key: line for key, line in found.items() if line.state == "failed" or self._has_run(line)}

    def _has_run(self, line: Result) -> bool:
        return line.run is not None and (self._path.parent / line.run).is_dir()

    def _read(self) -> list[Result]:
        """What is there, without a last line that was cut short (or is being written: a reader changes nothing)."""
        content = self._path.read_bytes() if self._path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        self._length = len(whole)
        lines = []
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                lines.append(_RESULT.validate_json(line))
            except ValidationError as error:
                why = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
                raise ConfigError(
                    f"{self._path}, line {number}: this is no result of a study ({why}); "
                    "take the line out, or begin with --fresh"
                ) from None
        return lines


def _sync_directory(directory: Path) -> None:
    """The name of a new file is on the disk only when its directory is."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
