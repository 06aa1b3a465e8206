"""Data sets in their original formats, one reader for each, which other processes can open too; nothing needs torch.

reader = open_reader(Origin(reader="pictures", path="roses"))
len(reader), reader.classes, reader.read(0)["inputs"].shape
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from minga.data.formats.arrays import ArrayReader, read_cifar10_part, read_idx_part
from minga.data.formats.base import PictureShape, Reader
from minga.data.formats.captions import CaptionReader
from minga.data.formats.pictures import PictureReader
from minga.data.formats.rows import TABLE_ENDINGS
from minga.data.formats.tables import TableChoice, TableReader
from minga.data.formats.text import TextReader
from minga.data.packed import lies_here
from minga.data.sources import KnownDataset
from minga.errors import DataError

__all__ = ["READERS", "Origin", "open_reader", "origin_of_known", "origin_of_path"]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where samples come from, and how they are read."""

    reader: str
    """One of `READERS`."""

    path: str
    """A folder or a file."""

    picture: PictureShape = field(default_factory=PictureShape)
    table: TableChoice = field(default_factory=TableChoice)

    context: int = 64
    """For text: characters of a sample."""

    class_folders: str = "*"
    classes: tuple[str, ...] = ()


def origin_of_known(dataset: KnownDataset, data: Path) -> Origin:
    """A known data set that was fetched to a data directory."""
    folder = data / dataset.folder
    path = folder
    if dataset.reader == "text":
        path = folder / dataset.files[0].name
    elif dataset.reader == "pictures" and dataset.archives:
        path = folder / (dataset.archives[0].into or "")
    if not path.is_dir() and lies_here(path) is None:
        raise DataError(f"{dataset.name} is not in {data}; fetch it: minga data fetch {dataset.name} --data {data}")
    return Origin(reader=dataset.reader, path=str(path), class_folders=dataset.class_folders, classes=dataset.classes)


def origin_of_path(path: Path) -> Origin:
    """A folder of pictures, a table, or a text, by what it looks like."""
    if path.is_dir():
        return Origin(reader="pictures", path=str(path))
    if not path.is_file():
        raise DataError(f"{path} is neither a data set that Minga knows (minga data list) nor a folder or file here")
    name = path.name.lower()  # some systems write .CSV and .TXT
    if name.endswith(TABLE_ENDINGS):
        return Origin(reader="table", path=str(path))
    if name.endswith((".txt", ".txt.gz", ".md")):
        return Origin(reader="text", path=str(path))
    raise DataError(
        f"it is not clear what {path.name} is; known are folders of pictures, tables ({', '.join(TABLE_ENDINGS)}) and "
        "text (.txt, .txt.gz)"
    )


READERS: dict[str, Callable[[Origin], Reader]] = {
    "pictures": lambda origin: PictureReader(Path(origin.path), origin.picture, origin.class_folders),
    "table": lambda origin: TableReader(Path(origin.path), origin.table),
    "text": lambda origin: TextReader(Path(origin.path), origin.context),
    "captions": lambda origin: CaptionReader(Path(origin.path)),
    "idx": lambda origin: ArrayReader(read_idx_part, Path(origin.path), origin.classes, origin.picture),
    "cifar10": lambda origin: ArrayReader(read_cifar10_part, Path(origin.path), origin.classes, origin.picture),
}


def open_reader(origin: Origin) -> Reader:
    """The reader for it; `DataError` where there is nothing to read."""
    return READERS[origin.reader](origin)
