"""Files that lie here plain or as `.gz`: the one place that knows both.

content = read_plain(Path("train-images-idx3-ubyte"))          # of that, or of train-images-idx3-ubyte.gz
"""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from minga.errors import DataError

__all__ = ["DAMAGE", "lies_here", "open_text", "plain_text", "read_plain"]

DAMAGE = (OSError, EOFError, zlib.error)
"""What reading a file that is cut or altered raises."""


def lies_here(path: Path) -> Path | None:
    """The file itself, or the same with `.gz` behind it; None if neither is there."""
    for candidate in (path, path.with_name(f"{path.name}.gz")):
        if candidate.is_file():
            return candidate
    return None


@contextlib.contextmanager
def _open_plain(path: Path) -> Iterator[BinaryIO]:
    """The content without its packing, whether the file is called `.gz` or only its packed form lies here."""
    here = lies_here(path) or path
    with gzip.open(here, "rb") if here.suffix.lower() == ".gz" else here.open("rb") as file:
        yield cast(BinaryIO, file)


@contextlib.contextmanager
def open_text(path: Path, encoding: str = "utf-8") -> Iterator[TextIO]:
    """The content as text, with ends of lines as they are; `DataError` where it is none."""
    try:
        with _open_plain(path) as raw, io.TextIOWrapper(raw, encoding=encoding, newline="") as text:
            yield text
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not in UTF-8 ({error}); save it as UTF-8") from None
    except DAMAGE as error:
        raise DataError(f"{path} can't be read ({error})") from None


def read_plain(path: Path) -> bytes:
    """All of the content; `DataError` where there is none."""
    try:
        with _open_plain(path) as file:
            return file.read()
    except DAMAGE as error:
        raise DataError(f"{path} can't be read ({error}); fetch the file again") from error


def plain_text(path: Path) -> str:
    """The content as text in UTF-8."""
    try:
        return read_plain(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} can't be read ({error}); fetch the file again") from error
