"""Archives unpacked with care: nothing outside of the folder, no links, no devices, no more than they say.

unpack(Path("pictures.zip"), Path("pictures"))
"""

from __future__ import annotations

import contextlib
import lzma
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from minga.data.directory import check_space
from minga.data.progress import NO_PROGRESS, ProgressDisplay
from minga.errors import DataError

__all__ = ["in_place_of", "is_archive", "take_members", "unpack"]

_PIECE = 1 << 20
_MOST_MEMBERS = 5_000_000
_DAMAGE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)


@dataclass(frozen=True)
class _Member:
    """A plain file in an archive."""

    name: str
    size: int
    content: IO[bytes]


def is_archive(path: Path) -> bool:
    """Whether it is one that can be unpacked here."""
    return path.is_file() and (zipfile.is_zipfile(path) or tarfile.is_tarfile(path))


def unpack(archive: Path, folder: Path, *, progress: ProgressDisplay = NO_PROGRESS) -> int:
    """Unpack all of it to a new folder, which appears when it is complete; the number of files."""
    with _trouble_told(archive, folder), in_place_of(folder) as new:
        count = 0
        new.mkdir()
        with progress.task(f"unpacking {archive.name}", total=None, unit="files") as advance:
            for member in _members(archive, folder.parent):
                _write(member, new / _inside(archive, member.name))
                count += 1
                advance(1)
    return count


@contextlib.contextmanager
def in_place_of(folder: Path) -> Iterator[Path]:
    """Where to make what takes the place of a folder, or of a link to one, when all of it is there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder.parent) as temporary:
        new = Path(temporary) / "content"
        yield new
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)
        new.rename(folder)


def take_members(archive: Path, names: set[str], folder: Path) -> set[str]:
    """Unpack only the files with these names (whatever folder they are in) to one; the names that were found."""
    found: set[str] = set()
    with _trouble_told(archive, folder):
        folder.mkdir(parents=True, exist_ok=True)
        for member in _members(archive, folder):
            name = PurePosixPath(member.name).name
            if name in names and name not in found and "__MACOSX" not in member.name:
                _write(member, folder / name)
                found.add(name)
    return found


def _members(archive: Path, folder: Path) -> Iterator[_Member]:
    """Its plain files; an error for what could do harm, or is too much for the folder's disk."""
    if zipfile.is_zipfile(archive):
        return _of_zip(archive, folder)
    if tarfile.is_tarfile(archive):
        return _of_tar(archive, folder)
    with archive.open("rb") as file:
        begins = file.read(8)
    kind = "a RAR file" if begins.startswith(b"Rar!") else "a 7z file" if begins[:2] == b"7z" else "or damaged"
    raise DataError(
        f"{archive.name} is no zip or tar file ({kind}); unpack it yourself and bring the folder with --from DIR"
    )


@contextlib.contextmanager
def _trouble_told(archive: Path, folder: Path) -> Iterator[None]:
    try:
        yield
    except (*_DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the system's; unpackers' own have no number
            raise DataError(
                f"{archive} can't be unpacked to {folder} ({error}); make room, or use another place with --data DIR"
            ) from None
        raise DataError(f"{archive} is damaged ({error}); remove it and fetch it again") from None


def _of_zip(archive: Path, folder: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as file:
        entries = file.infolist()
        _check_amount(archive, folder, len(entries), sum(entry.file_size for entry in entries))
        for entry in entries:
            mode = entry.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise DataError(f"{archive.name} has {entry.filename!r}, which is no plain file; it is not unpacked")
            if entry.flag_bits & 1:
                raise DataError(f"{archive.name} is encrypted; unpack it yourself and bring it with --from DIR")
            if not entry.is_dir():
                with file.open(entry) as content:
                    yield _Member(entry.filename, entry.file_size, content)


def _of_tar(archive: Path, folder: Path) -> Iterator[_Member]:
    with tarfile.open(archive) as file:
        for count, entry in enumerate(file, start=1):
            _check_amount(archive, folder, count, entry.size)
            if entry.isdir():
                continue
            if not entry.isreg():
                raise DataError(f"{archive.name} has {entry.name!r}, which is no plain file; it is not unpacked")
            content = file.extractfile(entry)
            assert content is not None
            with contextlib.closing(content):
                yield _Member(entry.name, entry.size, content)


def _check_amount(archive: Path, folder: Path, members: int, nbytes: int) -> None:
    if members > _MOST_MEMBERS:
        raise DataError(
            f"{archive.name} has more than {_MOST_MEMBERS:,} files; unpack it yourself, if it is to be trusted"
        )
    check_space(f"what is in {archive.name}", folder, nbytes, "make room, or use another with --data DIR")


def _inside(archive: Path, name: str) -> Path:
    """A member's name as a path below any folder."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or not path.parts or ":" in path.parts[0] or "\0" in name:
        raise DataError(f"{archive.name} has a file {name!r} that would lie outside of its folder; it is not unpacked")
    return Path(*path.parts)


def _write(member: _Member, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    left = member.size
    with path.open("wb") as file:
        while piece := member.content.read(_PIECE):
            left -= len(piece)
            if left < 0:
                raise DataError(f"{member.name!r} is longer than its archive says; it is not unpacked")
            file.write(piece)
