"""Whether a data set that lies here is whole: every file there, every checksum right.

for finding in verify(known_dataset("mnist"), data_directory(None)): print(finding.name, finding.state)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from minga.data.directory import lies_here
from minga.data.fetching.digests import check_file, digest_of, mismatch
from minga.data.fetching.record import RECORD, Noted, noted
from minga.data.progress import NO_PROGRESS, ProgressDisplay
from minga.data.sources import KnownArchive, KnownDataset, KnownFile

__all__ = ["FileCheck", "check_folder", "is_here", "verify"]


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
    """Read all of it; one finding per file, and one per folder or damaged file in it."""
    folder = data / dataset.folder
    remembered = noted(folder)
    archives = [archive for archive in dataset.archives if archive.into is not None]
    total = len(dataset.files) + sum(1 for name in remembered if name.partition("/")[0] in {a.into for a in archives})
    findings = []
    with progress.task(f"verifying {dataset.name}", total=total, unit="files") as advance:
        for file in dataset.files:
            findings.append(_of_file(file, folder, remembered))
            advance(1)
        for archive in archives:
            findings += check_folder(archive, folder, remembered, advance)
    return findings


def _of_file(file: KnownFile, folder: Path, remembered: dict[str, Noted]) -> FileCheck:
    here = lies_here(folder / file.name)
    if here is None:
        return FileCheck(file.name, "absent" if file.optional else "missing")
    if file.sha256 or file.md5:
        problem = check_file(here, file)
    elif here.name in remembered:
        problem = _changed(here, remembered[here.name])
    else:
        return FileCheck(file.name, "unchecked", "its checksum is not published, and it was not fetched by minga")
    return FileCheck(file.name, "whole" if problem is None else "damaged", problem)


def check_folder(
    archive: KnownArchive, folder: Path, remembered: dict[str, Noted], advance: Callable[[int], None]
) -> list[FileCheck]:
    """One finding per damaged file of what an archive was unpacked to, or one that all is as it was written down."""
    assert archive.into is not None
    expected = {name: each for name, each in remembered.items() if name.startswith(f"{archive.into}/")}
    if not (folder / archive.into).is_dir():
        return [FileCheck(archive.into, "absent" if archive.optional and not expected else "missing")]
    if not expected:
        return [FileCheck(archive.into, "unchecked", f"there is no {RECORD}: it was not fetched by minga")]
    wrong = []
    for name, each in expected.items():
        path = folder / name
        problem = _changed(path, each) if path.is_file() else None
        if not path.is_file():
            wrong.append(FileCheck(name, "missing"))
        elif problem is not None:
            wrong.append(FileCheck(name, "damaged", problem))
        advance(1)
    return wrong or [FileCheck(f"{archive.into} ({len(expected):,} files)", "whole")]


def _changed(path: Path, before: Noted) -> str | None:
    try:
        size, digest = digest_of(path)
    except OSError as error:
        return f"it can't be read: {error.strerror}"
    if size != before.bytes:
        return f"it has {size:,} bytes instead of {before.bytes:,}"
    return mismatch("sha256", digest, before.sha256)
