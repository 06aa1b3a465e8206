"""A data set's files found in some folder of this machine, however they are packed or nested there."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from minga.data.directory import lies_here
from minga.data.fetching.unpack import is_archive
from minga.data.sources import KnownArchive, KnownDataset

__all__ = ["bring_file", "bring_folder", "find_archive", "find_file", "find_folder"]


def find_file(place: Path, dataset: KnownDataset, name: str) -> Path | None:
    """The file, plain or `.gz`: in the folder, in that of the data set, or anywhere below."""
    if place.is_file():
        return place if place.name in (name, f"{name}.gz") else None
    for folder in (place / dataset.folder, place):
        if (found := lies_here(folder / name)) is not None:
            return found
    return next((path for each in (name, f"{name}.gz") for path in sorted(place.rglob(each)) if path.is_file()), None)


def find_archive(place: Path, archive: KnownArchive) -> Path | None:
    """The archive: the file that is given itself, or the one of that name, or of the name that its address has."""
    if place.is_file():
        return place if is_archive(place) else None
    names = (archive.name, archive.url.rpartition("/")[2])
    return next((path for name in names for path in sorted(place.rglob(name)) if is_archive(path)), None)


def find_folder(place: Path, dataset: KnownDataset, archive: KnownArchive) -> Path | None:
    """What an archive would be unpacked to: as another data directory has it, or the folder that is given itself."""
    for folder in (place / dataset.folder / (archive.into or ""), place / (archive.into or "")):
        if folder.is_dir():
            return folder
    return place if place.is_dir() and any(path.is_dir() for path in place.iterdir()) else None


def bring_file(source: Path, target: Path, *, link: bool) -> None:
    """Copy (or link to) a file; it has its name when all of it is there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.new")
    temporary.unlink(missing_ok=True)
    if link:
        temporary.symlink_to(source.resolve())
    else:
        shutil.copyfile(source, temporary)
    temporary.replace(target)


def bring_folder(source: Path, target: Path, *, link: bool) -> None:
    """Copy (or link to) a folder; it has its name when all of it is there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".copying-", dir=target.parent) as name:
        temporary = Path(name) / "content"
        if link:
            temporary.symlink_to(source.resolve(), target_is_directory=True)
        else:
            shutil.copytree(source, temporary)
        if target.is_symlink():
            target.unlink()
        elif target.exists():
            shutil.rmtree(target)
        temporary.rename(target)
