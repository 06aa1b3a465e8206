"""Whether a data set that lies here is whole: every file there, every checksum right.

for check in verify(known_dataset("mnist"), data_directory(None)): print(check.name, check.state)

Where nobody publishes a checksum, that of the first fetch is written down: `fetched.json`, beside the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter

from minga.data.checksums import FileCheck, digest_of, what_is_wrong
from minga.data.packed import lies_here
from minga.data.progress import NO_PROGRESS, ProgressDisplay
from minga.data.sources import KnownArchive, KnownDataset, KnownFile, PublishedFile
from minga.errors import DataError

__all__ = ["check_folder", "check_known", "files_in", "is_here", "record", "recorded", "verify"]

RECORD = "fetched.json"


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
    unpacked = [(each, recorded(folder, each.into)) for each in dataset.archives if each.into is not None]
    total = len(dataset.files) + sum(len(expected) for _, expected in unpacked)
    checks = []
    with progress.task(f"verifying {dataset.name}", total=total, unit="files") as advance:
        for file in dataset.files:
            checks.append(_check_listed(file, folder, before))
            advance(1)
        for archive, expected in unpacked:
            checks += check_folder(archive, folder, expected, advance)
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


def check_known(path: Path, known: PublishedFile, *, packed: bool | None = None) -> str | None:
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
    archive: KnownArchive, folder: Path, expected: dict[str, RecordedFile], advance: Callable[[int], None]
) -> list[FileCheck]:
    """One check per damaged file of what an archive was unpacked to, or one that all is as it was written down."""
    assert archive.into is not None
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


@dataclass(frozen=True, kw_only=True)
class RecordedFile:
    """A file as it was when it was fetched."""

    bytes: int
    sha256: str
    origin: Annotated[str, Field(alias="from")] = ""


@dataclass(frozen=True, kw_only=True)
class _Record:
    files: dict[str, RecordedFile] = field(default_factory=dict)
    time: str = ""


_RECORD = TypeAdapter(_Record)


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
    given = {} if below is None else recorded(folder, below)
    files = {name: each for name, each in recorded(folder).items() if name not in given}
    for path in paths:
        size, digest = digest_of(path)
        files[path.relative_to(folder).as_posix()] = RecordedFile(bytes=size, sha256=digest, origin=origin)
        advance(1)
    written = _Record(files=files, time=datetime.now(UTC).isoformat(timespec="seconds"))
    temporary = folder / f"{RECORD}.new"
    temporary.write_bytes(_RECORD.dump_json(written, by_alias=True, indent=1) + b"\n")
    temporary.replace(folder / RECORD)


def recorded(folder: Path, below: str | None = None) -> dict[str, RecordedFile]:
    """By path below the folder, all or those in one folder of it; nothing where nothing was written down."""
    path = folder / RECORD
    try:
        files = _RECORD.validate_json(path.read_bytes()).files
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise DataError(f"{path} can't be read ({error}); remove it and fetch the data set again") from None
    except ValueError:
        raise DataError(f"{path} is damaged; remove it and fetch the data set again") from None
    return {name: each for name, each in files.items() if below is None or name.startswith(f"{below}/")}


def files_in(folder: Path) -> Iterator[Path]:
    """All files below a folder, in a steady order, without hidden ones."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.name.startswith("."):
            yield from files_in(path)
        elif not path.name.startswith("."):
            yield path
