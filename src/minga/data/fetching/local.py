"""A data set's files found in some folder of this machine, however they are packed or nested there."""

from __future__ import annotations

import shutil
from pathlib import Path

from minga.data.fetching.unpack import in_place_of, is_archive
from minga.data.formats.pictures import PICTURE_ENDINGS, class_names
from minga.data.packed import lies_here
from minga.data.sources import KnownArchive, KnownDataset
from minga.errors import DataError

__all__ = ["archives_in", "bring_file", "bring_folder", "check_apart", "find_archive", "find_file", "find_folder"]

_ARCHIVE_ENDINGS = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")


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


def archives_in(place: Path) -> list[Path]:
    """Those right in a folder, whatever they are called."""
    found = sorted(place.iterdir()) if place.is_dir() else []
    return [path for path in found if path.name.lower().endswith(_ARCHIVE_ENDINGS) and is_archive(path)]


def find_folder(place: Path, dataset: KnownDataset, archive: KnownArchive) -> Path | None:
    """What an archive would be unpacked to: as another data directory has it, or the folder that is given itself."""
    if not place.is_dir():
        return None
    named = (place / dataset.folder / (archive.into or ""), place / (archive.into or ""))
    if dataset.reader == "pictures":
        return next((folder for folder in (*named, place) if _has_classes(folder, dataset)), None)
    # Loose pictures: a folder that is not called as expected must have them right inside.
    loose = any(path.suffix.lower() in PICTURE_ENDINGS for path in place.iterdir())
    return next((folder for folder in named if folder.is_dir()), place if loose else None)


def _has_classes(folder: Path, dataset: KnownDataset) -> bool:
    """Whether there are pictures of the data set's classes; of any two where nobody says which it has."""
    try:
        found = class_names(folder, dataset.class_folders) if folder.is_dir() else set()
    except DataError:  # something else lies there
        return False
    return len(found) > 1 and found >= set(dataset.classes)


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


def check_apart(source: Path, target: Path) -> None:
    """`DataError` if a folder would be brought into itself."""
    here, there = source.resolve(), target.parent.resolve() / target.name
    if here.is_relative_to(there) or there.is_relative_to(here):
        raise DataError(
            f"{source} can't be brought to {target}: they are the same, or one is inside of the other; give the folder "
            "of the pictures alone with --from, or another place with --data DIR"
        )


def bring_folder(source: Path, target: Path, *, link: bool) -> None:
    """Copy (or link to) a folder; it has its name when all of it is there."""
    with in_place_of(target) as new:
        if link:
            new.symlink_to(source.resolve(), target_is_directory=True)
        else:
            shutil.copytree(source, new)
