"""The data sets that Minga knows: one small TOML file each, with files, checksums, licence and where they come from.

    known_dataset("mnist").files[0].sha256

A new data set is a new file here. Checksums are of the plain content: a file that lies there as `.gz` is unpacked to
be checked. Where nobody publishes a checksum there is none, and that of the first fetch is written down.
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib.resources import files

from minga.errors import unknown

__all__ = ["READERS", "KnownArchive", "KnownDataset", "KnownFile", "known_dataset", "known_datasets"]

READERS = ("idx", "cifar10", "captions", "text", "pictures")


@dataclass(frozen=True, kw_only=True)
class KnownFile:
    """One file of a data set."""

    name: str
    """As it is called when it is plain; it may lie there with `.gz` behind it."""

    url: str | None = None
    """Where it is published, plain or as `.gz`; None: in an archive, or nowhere."""

    archive: str | None = None
    """The archive that has it."""

    bytes: int | None = None
    """Of the plain content."""

    sha256: str | None = None
    """Of the plain content; None: unknown."""

    md5: str | None = None
    """Of the plain content, where that is what is published."""

    optional: bool = False
    """Whether training does without it."""


@dataclass(frozen=True, kw_only=True)
class KnownArchive:
    """A zip or tar file that a data set is published as."""

    name: str
    url: str

    bytes: int | None = None
    sha256: str | None = None
    md5: str | None = None

    into: str | None = None
    """The folder that all of it is unpacked to; None: only the files that the data set lists."""

    optional: bool = False
    """Whether training does without it."""


@dataclass(frozen=True, kw_only=True)
class KnownDataset:
    """A data set: what it is, whose it is, what it consists of."""

    name: str
    title: str

    reader: str
    """Which reader knows its files: one of `READERS`."""

    homepage: str
    licence: str
    citation: str

    workloads: tuple[str, ...] = ()
    """Names of built-in workloads that train on it, with `*` for several."""

    folder: str = ""
    """In the data directory; default: its name."""

    class_folders: str = "*"
    """For pictures: folders that are classes, `*` standing for the class."""

    classes: tuple[str, ...] = ()
    """Names of the classes; in the order of their numbers where the files have only these."""

    note: str = ""
    """What to know before fetching it."""

    files: tuple[KnownFile, ...] = ()
    archives: tuple[KnownArchive, ...] = ()

    def __post_init__(self) -> None:
        assert self.reader in READERS, f"{self.name}: {self.reader}"
        archives = {archive.name for archive in self.archives}
        assert all(file.archive in {None, *archives} for file in self.files), f"{self.name}: {archives}"

    @property
    def bytes(self) -> int | None:
        """Of what training needs; None: unknown."""
        if any(archive.into is not None and not archive.optional for archive in self.archives):
            return None
        return sum(file.bytes or 0 for file in self.files if not file.optional)


@functools.cache
def known_datasets() -> dict[str, KnownDataset]:
    """All of them, by name."""
    found = {}
    for entry in sorted(files(__name__).iterdir(), key=lambda entry: entry.name):
        if entry.name.endswith(".toml"):
            table = tomllib.loads(entry.read_text(encoding="utf-8"))
            table["files"] = tuple(KnownFile(**file) for file in table.get("files", ()))
            table["archives"] = tuple(KnownArchive(**archive) for archive in table.get("archives", ()))
            for several in ("workloads", "classes"):
                table[several] = tuple(table.get(several, ()))
            table.setdefault("folder", table["name"])
            found[table["name"]] = KnownDataset(**table)
    return found


def known_dataset(name: str) -> KnownDataset:
    """The data set of that name."""
    if name not in known_datasets():
        raise unknown("data set", name, known_datasets(), "For data of your own, write a workload: file.py:name.")
    return known_datasets()[name]
