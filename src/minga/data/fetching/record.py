"""What was fetched, written down: `fetched.json` beside the files, with the hash of each where nobody publishes one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from minga.data.fetching.digests import digest_of
from minga.errors import DataError

__all__ = ["RECORD", "Noted", "files_in", "note_down", "noted"]

RECORD = "fetched.json"


@dataclass(frozen=True)
class Noted:
    """A file as it was when it was fetched."""

    bytes: int
    sha256: str


def note_down(
    folder: Path,
    paths: list[Path],
    *,
    origin: str,
    below: str | None = None,
    advance: Callable[[int], None] = lambda done: None,
) -> None:
    """Write down size and hash of files in a data set's folder, besides those that are noted already.

    `below`: a folder in it whose files are all given; what was noted of others there is forgotten.
    """
    table = _read(folder)
    if below is not None:
        table["files"] = {name: each for name, each in table["files"].items() if not name.startswith(f"{below}/")}
    for path in paths:
        size, digest = digest_of(path)
        table["files"][path.relative_to(folder).as_posix()] = {"bytes": size, "sha256": digest, "from": origin}
        advance(1)
    table["time"] = datetime.now(UTC).isoformat(timespec="seconds")
    temporary = folder / f"{RECORD}.new"
    temporary.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    temporary.replace(folder / RECORD)


def noted(folder: Path) -> dict[str, Noted]:
    """By path below the folder; nothing where nothing was written down."""
    files = _read(folder)["files"]
    try:
        return {name: Noted(int(entry["bytes"]), str(entry["sha256"])) for name, entry in files.items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DataError(f"{folder / RECORD} is damaged; remove it and fetch the data set again") from None


def files_in(folder: Path) -> Iterator[Path]:
    """All files below a folder, in a steady order, without hidden ones."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from files_in(path)
        else:
            yield path


def _read(folder: Path) -> dict[str, Any]:
    try:
        table = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {"files": {}}
    except (OSError, ValueError) as error:
        raise DataError(f"{folder / RECORD} can't be read ({error}); remove it and fetch the data set again") from None
    if not isinstance(table, dict) or not isinstance(table.get("files"), dict):
        raise DataError(f"{folder / RECORD} is damaged; remove it and fetch the data set again")
    return table
