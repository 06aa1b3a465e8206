"""Rows of a CSV, TSV or Parquet file, as often as they are asked for, without the whole of it in memory."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from minga.data.packed import open_text
from minga.errors import DataError

__all__ = ["TABLE_ENDINGS", "Rows", "open_rows"]

TABLE_ENDINGS = (".csv", ".tsv", ".parquet", ".csv.gz", ".tsv.gz")
_OTHER_SEPARATORS = ";\t|"
"""What programs write where the comma is part of numbers, or the ending does not say it."""
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*")


class Rows(Protocol):
    """A table: names of columns, and rows whenever it is iterated."""

    columns: list[str]

    def __iter__(self) -> Iterator[Sequence[Any]]: ...


def open_rows(path: Path) -> Rows:
    """The table in a file, by its ending."""
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    name = path.name.lower()
    if name.endswith(".parquet"):
        return _ParquetRows(path)
    if name.endswith(TABLE_ENDINGS):
        return _CsvRows(path)
    raise DataError(f"{path.name} is no table that can be read; known endings: {', '.join(TABLE_ENDINGS)}")


class _CsvRows:
    """The first line has the names of the columns."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._separator = "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ","
        header = next(self._lines(), None)
        if header and len(header) == 1 and (other := max(_OTHER_SEPARATORS, key=header[0].count)) in header[0]:
            self._separator = other
            header = next(self._lines(), None)
        if not header:
            raise DataError(f"{path} is empty; its first line should name the columns")
        self.columns = [name.strip() for name in header]
        if len(set(self.columns)) < len(self.columns):
            twice = next(name for name in self.columns if self.columns.count(name) > 1)
            raise DataError(f"{path} has two columns {twice!r}; does its first line name the columns?")
        if (number := _number_among(self.columns)) is not None:
            raise DataError(
                f"the first line of {path} should name the columns, and has {number!r}, a number: put a line with a "
                "name for each column before it, or call that column otherwise"
            )

    def __iter__(self) -> Iterator[Sequence[Any]]:
        lines = self._lines()
        next(lines)
        rows = (row for row in lines if row)
        if self._separator != ";":
            return rows
        # Programs take the semicolon where numbers have commas: 12,5. With others it may be one of thousands: 12,500.
        return ([_with_point(cell) for cell in row] for row in rows)

    def _lines(self) -> Iterator[list[str]]:
        with open_text(self._path, "utf-8-sig") as text:
            try:
                yield from csv.reader(text, delimiter=self._separator, skipinitialspace=True)
            except csv.Error as error:
                raise DataError(f"{self._path} can't be read ({error})") from None


def _with_point(cell: str) -> str:
    return cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell) else cell


def _number_among(names: list[str]) -> str | None:
    """A name that is a number, as the first line of a table without names has them."""
    numbers = [name for name in names if _NUMBER.fullmatch(name)]
    # Programs that know no names count columns (0, 1, 2, ...), and some columns are years.
    counted = len(numbers) >= 3 and all(float(after) - float(before) == 1 for before, after in pairwise(numbers))
    return numbers[0] if numbers and not counted else None


class _ParquetRows:
    def __init__(self, path: Path) -> None:
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            raise DataError("reading Parquet needs pyarrow: pip install 'minga[tables]'") from None
        self._path = path
        self._errors = (OSError, pyarrow.ArrowException)
        self._file: Any = parquet.ParquetFile
        try:
            with self._file(path) as file:
                self.columns = [str(name) for name in file.schema_arrow.names]
        except self._errors as error:
            raise DataError(f"{path} can't be read as Parquet ({error})") from None

    def __iter__(self) -> Iterator[Sequence[Any]]:
        try:
            with self._file(self._path) as file:
                for batch in file.iter_batches(batch_size=4096):
                    yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
        except self._errors as error:
            raise DataError(f"{self._path} can't be read as Parquet ({error})") from None
