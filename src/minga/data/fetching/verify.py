"""Whether a data set that lies here is whole: every file there, every checksum right.

for check in verify(known_dataset("mnist"), data_directory(None)): print(check.name, check.state)

Where nobody publishes a checksum, that of the first fetch is written down: `fetched.json`, beside the files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from minga.data.checksums import FileCheck, digest_of, what_is_wrong
from minga.data.packed import lies_here
from minga.data.progress import NO_PROGRESS, ProgressDisplay
from minga.data.sources import KnownArchive, KnownDataset, KnownFile
from minga.errors import DataError

__all__ = [
    "RECORD",
    "RecordedFile",
    "check_folder",
    "check_known",
    "files_in",
    "is_here",
    "record",
    "recorded",
    "verify",
]

RECORD = "fetched.json"


@dataclass(frozen=True)
class RecordedFile:
    """A file as it was when it was fetched."""

    bytes: int
    sha256: str


def is_here(dataset: KnownDataset, data: Path) -> bool:
    """Whether all that training needs lies there; whether it is damaged is for `verify` to say."""
    folder = data / dataset.folder
    files = (lies_here(folder / file.name) is not None for file in dataset.files if not file.optional)
    folders = (
        (folder / archive.into).is_dir()
        for archive in dataset.archives
        if archive.into is not None and not archive.optional
    )
    return all(files) and all(folders)


def verify(dataset: KnownDataset, data: Path, *, progress: ProgressDisplay = NO_PROGRESS) -> list[FileCheck]:
    """Read all of it; one check per file, and one per folder or damaged file in it."""
    folder = data / dataset.folder
    before = recorded(folder)
    archives = [archive for archive in dataset.archives if archive.into is not None]
    total = len(dataset.files) + sum(1 for name in before if name.partition("/")[0] in {a.into for a in archives})
    checks = []
    with progress.task(f"verifying {dataset.name}", total=total, unit="files") as advance:
        for file in dataset.files:
            checks.append(_check_listed(file, folder, before))
            advance(1)
        for archive in archives:
            checks += check_folder(archive, folder, before, advance)
    return checks


def _check_listed(file: KnownFile, folder: Path, before: dict[str, RecordedFile]) -> FileCheck:
    here = lies_here(folder / file.name)
    if here is None:
        return FileCheck(file.name, "absent" if file.optional else "missing")
    if file.sha256 or file.md5:
        problem = check_known(here, file)
        return FileCheck(file.name, "whole" if problem is None else "damaged", problem)
    if here.name in before:
        return FileCheck.of(file.name, here, before[here.name].bytes, before[here.name].sha256)
    return FileCheck(file.name, "unchecked", "its checksum is not published, and it was not fetched by minga")


def check_known(path: Path, known: KnownFile | KnownArchive, *, packed: bool | None = None) -> str | None:
    """What is wrong with a file by what is published of it, in words; None: nothing, or nothing is known.

    `packed`: whether it is a `.gz` of what is known; by default its name tells.
    """
    return what_is_wrong(
        path,
        size=known.bytes,
        digest=known.sha256 or known.md5,
        algorithm="sha256" if known.sha256 is not None else "md5",
        packed=path.name == f"{known.name}.gz" if packed is None else packed,
    )


def check_folder(
    archive: KnownArchive, folder: Path, before: dict[str, RecordedFile], advance: Callable[[int], None]
) -> list[FileCheck]:
    """One check per damaged file of what an archive was unpacked to, or one that all is as it was written down."""
    assert archive.into is not None
    expected = {name: each for name, each in before.items() if name.startswith(f"{archive.into}/")}
    if not (folder / archive.into).is_dir():
        return [FileCheck(archive.into, "absent" if archive.optional and not expected else "missing")]
    if not expected:
        return [FileCheck(archive.into, "unchecked", f"there is no {RECORD}: it was not fetched by minga")]
    wrong = []
    for name, each in expected.items():
        check = FileCheck.of(name, folder / name, each.bytes, each.sha256)
        wrong += [check] if check.wrong else []
        advance(1)
    return wrong or [FileCheck(f"{archive.into} ({len(expected):,} files)", "whole")]


# --- what was fetched, written down --------------------------------------------------------------------------------


def record(
    folder: Path,
    paths: list[Path],
    *,
    origin: str,
    below: str | None = None,
    advance: Callable[[int], None] = lambda done: None,
) -> None:
    """Write down size and hash of files in a data set's folder, besides those that are recorded already.

    `below`: a folder in it whose files are all given; what was recorded of others there is forgotten.
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


def recorded(folder: Path) -> dict[str, RecordedFile]:
    """By path below the folder; nothing where nothing was written down."""
    files = _read(folder)["files"]
    try:
        return {name: RecordedFile(int(entry["bytes"]), str(entry["sha256"])) for name, entry in files.items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DataError(f"{folder / RECORD} is damaged; remove it and fetch the data set again") from None


def files_in(folder: Path) -> Iterator[Path]:
    """All files below a folder, in a steady order, without hidden ones."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.name.startswith("."):
            yield from files_in(path)
        elif not path.name.startswith("."):
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
