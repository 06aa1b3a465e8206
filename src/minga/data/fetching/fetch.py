"""A known data set brought into the data directory, from where it is published or from a folder of this machine.

fetch(known_dataset("mnist"), data_directory(None))
fetch(known_dataset("mnist"), Path("data"), source=Path("/mnt/stick"))       # without a network

What is here already and whole is left alone; each file gets its name only when it is complete and has its checksum.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from minga.data.fetching.download import Patience, download
from minga.data.fetching.unpack import in_place_of, is_archive, take_members, unpack
from minga.data.fetching.verify import check_folder, check_known, files_in, record, recorded
from minga.data.formats.pictures import PICTURE_ENDINGS, class_names
from minga.data.packed import lies_here
from minga.data.progress import NO_PROGRESS, ProgressDisplay
from minga.data.sources import KnownArchive, KnownDataset, KnownFile, PublishedFile
from minga.errors import DataError

__all__ = ["FetchedFile", "fetch"]

_ARCHIVE_ENDINGS = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")


@dataclass(frozen=True)
class FetchedFile:
    """What became of one file or folder."""

    name: str
    state: str
    """"here" (it was already), "fetched", or "left out" (optional, and not published)."""
    path: Path


def fetch(
    dataset: KnownDataset,
    data: Path,
    *,
    source: Path | None = None,
    link: bool = False,
    everything: bool = False,
    progress: ProgressDisplay = NO_PROGRESS,
    patience: Patience | None = None,
) -> list[FetchedFile]:
    """Bring what is missing or damaged. `source`: only from there; `everything`: what training does without, too."""
    if source is not None and not source.exists():
        raise DataError(f"--from {source}: there is no such folder or file")
    fetching = _Fetching(dataset, data / dataset.folder, source, link, progress, patience)
    try:
        return list(fetching.bring(everything=everything))
    except OSError as error:
        raise DataError(
            f"{dataset.name} can't be brought to {fetching.folder} ({error}); make it writable, or use "
            "another place with --data DIR"
        ) from None


@dataclass(frozen=True)
class _Fetching:
    dataset: KnownDataset
    folder: Path
    source: Path | None
    link: bool
    progress: ProgressDisplay
    patience: Patience | None

    def bring(self, *, everything: bool) -> Iterator[FetchedFile]:
        for file in self.dataset.files:
            if file.archive is None:
                yield self.file(file, wanted=everything or not file.optional)
        for archive in self.dataset.archives:
            if archive.into is not None:
                yield self.whole_archive(archive, self.folder / archive.into, wanted=everything or not archive.optional)
            else:
                yield from self.members(archive)

    def file(self, file: KnownFile, *, wanted: bool) -> FetchedFile:
        if (here := self._whole(file)) is not None:
            return FetchedFile(file.name, "here", here)
        if self.source is not None:
            found = _find_file(self.source, self.dataset, file.name)
            if found is not None:
                return self._copied(file, found)
            if wanted:
                raise self._not_there([file.name])
        elif wanted and file.url is not None:
            packed = file.url.endswith(".gz") and not file.name.endswith(".gz")
            target = self.folder / (f"{file.name}.gz" if packed else file.name)
            self._download(file.url, target, file, packed=packed)
            return self._recorded(file, target, file.url)
        elif wanted and not file.optional:
            raise DataError(f"{file.name} is not published; bring it with --from DIR. {self.dataset.note}".rstrip())
        return FetchedFile(file.name, "left out", self.folder / file.name)

    def members(self, archive: KnownArchive) -> Iterator[FetchedFile]:
        missing = []
        for file in self.dataset.files:
            if file.archive != archive.name:
                continue
            if (here := self._whole(file)) is not None:
                yield FetchedFile(file.name, "here", here)
            elif self.source is not None and (found := _find_file(self.source, self.dataset, file.name)) is not None:
                yield self._copied(file, found)
            else:
                missing.append(file)
        if not missing:
            return
        packed = self._downloaded(archive) if self.source is None else _find_archive(self.source, archive)
        if packed is None:
            raise self._not_there([*(file.name for file in missing), archive.name])
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=self.folder) as name:
            there = take_members(packed, {file.name for file in missing}, Path(name))
            for file in missing:
                if file.name not in there:
                    raise DataError(f"{packed} has no {file.name}; is it the right archive?")
                self._refuse_damaged(file, Path(name) / file.name, packed=False)
                target = (Path(name) / file.name).replace(self.folder / file.name)
                yield self._recorded(file, target, archive.url if self.source is None else str(packed))
        if self.source is None:
            packed.unlink()

    def whole_archive(self, archive: KnownArchive, target: Path, *, wanted: bool) -> FetchedFile:
        if self._is_as_recorded(archive) or (self.source is None and self._was_put_here(archive, target)):
            return FetchedFile(target.name, "here", target)
        packed = _find_archive(self.source, archive) if self.source is not None else None
        folder = None
        if self.source is not None and packed is None and wanted:
            folder = _find_folder(self.source, self.dataset, archive)
            if folder is None:
                named = ", ".join(self.dataset.classes) or repr(self.dataset.class_folders)
                pictures = f"pictures in folders named {named}" if self.dataset.reader == "pictures" else target.name
                raise self._not_there([archive.name, pictures])
            _check_apart(folder, target)
        if packed is None and not wanted:
            return FetchedFile(target.name, "left out", target)
        if packed is not None:
            self._refuse_damaged(archive, packed, packed=False)
        self._spare_others(archive, target)
        if folder is not None:
            _bring_folder(folder, target, link=self.link)
        else:
            packed = packed or self._downloaded(archive)
            unpack(packed, target, progress=self.progress)
        paths = list(files_in(target))
        origin = archive.url if self.source is None else str(packed or folder)
        with self.progress.task("writing down checksums", total=len(paths), unit="files") as advance:
            record(self.folder, paths, origin=origin, below=archive.into, advance=advance)
        if self.source is None and packed is not None:
            packed.unlink()
        return FetchedFile(target.name, "fetched", target)

    def _whole(self, file: KnownFile) -> Path | None:
        """Where it lies, if it does and is not damaged."""
        here = lies_here(self.folder / file.name)
        return here if here is not None and check_known(here, file) is None else None

    def _is_as_recorded(self, archive: KnownArchive) -> bool:
        """Whether all that an archive was unpacked to is there, and as it was then."""
        expected = recorded(self.folder, archive.into)
        if not expected:
            return False
        with self.progress.task(f"checking {archive.into}", total=len(expected), unit="files") as advance:
            return all(each.state == "whole" for each in check_folder(archive, self.folder, expected, advance))

    def _was_put_here(self, archive: KnownArchive, target: Path) -> bool:
        """Whether people unpacked it themselves: it will do, and what nobody wrote down can't be damaged."""
        unfinished = (self.folder / archive.name).exists()
        ours = unfinished or recorded(self.folder, archive.into)
        return not ours and _find_folder(target, self.dataset, archive) is not None

    def _spare_others(self, archive: KnownArchive, target: Path) -> None:
        """`DataError` where bringing the folder anew would remove what somebody else has put into it."""
        if target.is_symlink() or not target.is_dir() or (self.folder / archive.name).exists():
            return  # the link goes, not what it leads to; or one of ours, and not written down to the end
        ours = recorded(self.folder)
        others = (path for path in files_in(target) if path.relative_to(self.folder).as_posix() not in ours)
        if (other := next(others, None)) is not None:
            raise DataError(
                f"{target} would be replaced, and with it {other}, which minga has not brought; move it elsewhere, or "
                "give another place with --data DIR"
            )

    def _downloaded(self, archive: KnownArchive) -> Path:
        """The archive; one that was downloaded before, and not unpacked to the end, will do."""
        path = self.folder / archive.name
        if not (is_archive(path) and check_known(path, archive) is None):
            self._download(archive.url, path, archive, packed=False)
        return path

    def _download(self, url: str, target: Path, known: PublishedFile, *, packed: bool) -> None:
        def check(path: Path) -> str | None:
            return check_known(path, known, packed=packed)

        download(url, target, check=check, progress=self.progress, patience=self.patience)

    def _copied(self, file: KnownFile, found: Path) -> FetchedFile:
        packed = found.name == f"{file.name}.gz"
        self._refuse_damaged(file, found, packed=packed)
        target = self.folder / (f"{file.name}.gz" if packed else file.name)
        if not (target.exists() and target.samefile(found)):
            _bring_file(found, target, link=self.link)
        return self._recorded(file, target, str(found))

    def _recorded(self, file: KnownFile, target: Path, origin: str) -> FetchedFile:
        for other in {file.name, f"{file.name}.gz"} - {target.name}:
            (self.folder / other).unlink(missing_ok=True)  # one that was damaged, or this would not have been brought
        record(self.folder, [target], origin=origin)
        return FetchedFile(file.name, "fetched", target)

    def _refuse_damaged(self, known: PublishedFile, path: Path, *, packed: bool) -> None:
        if (problem := check_known(path, known, packed=packed)) is not None:
            raise DataError(f"{path} is not the {known.name} of {self.dataset.name}: {problem}")

    def _not_there(self, names: Sequence[str]) -> DataError:
        found = _archives_in(self.source) if self.source is not None else []
        archives = f"give one of its archives with --from ({', '.join(map(str, found[:3]))}), or " if found else ""
        return DataError(
            f"{self.source} has no {' and no '.join(names)}, which {self.dataset.name} needs; {archives}leave --from "
            f"out to download it, or see {self.dataset.homepage}"
        )


# --- what lies in some folder of this machine, however it is packed or nested there --------------------------------


def _find_file(place: Path, dataset: KnownDataset, name: str) -> Path | None:
    """The file, plain or `.gz`: in the folder, in that of the data set, or anywhere below."""
    if place.is_file():
        return place if place.name in (name, f"{name}.gz") else None
    for folder in (place / dataset.folder, place):
        if (found := lies_here(folder / name)) is not None:
            return found
    return next((path for each in (name, f"{name}.gz") for path in sorted(place.rglob(each)) if path.is_file()), None)


def _find_archive(place: Path, archive: KnownArchive) -> Path | None:
    """The archive: the file that is given itself, or the one of that name, or of the name that its address has."""
    if place.is_file():
        return place if is_archive(place) else None
    names = (archive.name, archive.url.rpartition("/")[2])
    return next((path for name in names for path in sorted(place.rglob(name)) if is_archive(path)), None)


def _archives_in(place: Path) -> list[Path]:
    """Those right in a folder, whatever they are called."""
    found = sorted(place.iterdir()) if place.is_dir() else []
    return [path for path in found if path.name.lower().endswith(_ARCHIVE_ENDINGS) and is_archive(path)]


def _find_folder(place: Path, dataset: KnownDataset, archive: KnownArchive) -> Path | None:
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


def _bring_file(source: Path, target: Path, *, link: bool) -> None:
    """Copy (or link to) a file; it has its name when all of it is there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.new")
    temporary.unlink(missing_ok=True)
    if link:
        temporary.symlink_to(source.resolve())
    else:
        shutil.copyfile(source, temporary)
    temporary.replace(target)


def _check_apart(source: Path, target: Path) -> None:
    """`DataError` if a folder would be brought into itself."""
    here, there = source.resolve(), target.parent.resolve() / target.name
    if here.is_relative_to(there) or there.is_relative_to(here):
        raise DataError(
            f"{source} can't be brought to {target}: they are the same, or one is inside of the other; give the folder "
            "of the pictures alone with --from, or another place with --data DIR"
        )


def _bring_folder(source: Path, target: Path, *, link: bool) -> None:
    """Copy (or link to) a folder; it has its name when all of it is there."""
    with in_place_of(target) as new:
        if link:
            new.symlink_to(source.resolve(), target_is_directory=True)
        else:
            shutil.copytree(source, new)
