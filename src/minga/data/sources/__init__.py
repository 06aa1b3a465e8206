"""The data sets that Minga knows: one small TOML file each, with files, checksums, licence and where they come from.

    known_dataset("mnist").files[0].sha256

A new data set is a new file here. Checksums are of the plain content: a file that lies there as `.gz` is unpacked to
be checked. Where nobody publishes a checksum there is none, and that of the first fetch is written down.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import ClassVar

from minga.base.config import Config
from minga.base.toml_files import load_config
from minga.errors import unknown

__all__ = ["KnownArchive", "KnownDataset", "KnownFile", "PublishedFile", "known_dataset", "known_datasets"]


@dataclass(frozen=True, kw_only=True)
class PublishedFile(Config):
    """What those who publish a file say of it."""

    name: str

    bytes: int | None = None
    sha256: str | None = None
    """None: unknown."""

    md5: str | None = None
    """Where that is what is published."""

    optional: bool = False
    """Whether training does without it."""


@dataclass(frozen=True, kw_only=True)
class KnownFile(PublishedFile):
    """One file of a data set: name, bytes and checksums are those of the plain content, with `.gz` behind it or not."""

    kind: ClassVar[str] = "file of a data set"

    url: str | None = None
    """Where it is published, plain or as `.gz`; None: in an archive, or nowhere."""

    archive: str | None = None
    """The archive that has it."""


@dataclass(frozen=True, kw_only=True)
class KnownArchive(PublishedFile):
    """A zip or tar file that a data set is published as."""

    kind: ClassVar[str] = "archive of a data set"

    url: str

    into: str | None = None
    """The folder that all of it is unpacked to; None: only the files that the data set lists."""


@dataclass(frozen=True, kw_only=True)
class KnownDataset(Config):
    """A data set: what it is, whose it is, what it consists of."""

    kind: ClassVar[str] = "data set"

    name: str
    title: str

    reader: str
    """Which reader knows its files: one of `minga.data.formats.READERS`."""

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

    def check(self) -> None:
        object.__setattr__(self, "folder", self.folder or self.name)
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
    with as_file(files(__name__)) as folder:
        found = [load_config(KnownDataset, path) for path in sorted(folder.glob("*.toml"))]
    return {dataset.name: dataset for dataset in found}


def known_dataset(name: str) -> KnownDataset:
    """The data set of that name."""
    if name not in known_datasets():
        raise unknown("data set", name, known_datasets(), "For data of your own, write a workload: file.py:name.")
    return known_datasets()[name]
