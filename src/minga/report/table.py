"""A table: values once, shown for people in pages and with all their digits in CSV.

Table.of("groups", "Groups", [{Column("seconds", "time", show_seconds, spread=True): Spread.of([1, 2])}])
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from minga.report.dataset.statistics import Spread
from minga.report.numbers import duration

__all__ = ["Column", "Table", "show_number", "show_percent", "show_ratio", "show_seconds"]


def show_seconds(value: float) -> str:
    if not math.isfinite(value):
        return "never"
    if 0 < value < 1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.2f} s" if 0 < value < 10 else duration(value)


def show_percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def show_ratio(value: float) -> str:
    return f"{value:.2f}x"


def show_number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


@dataclass(frozen=True, eq=False)
class Column:
    """A column's name in CSV, its heading for people (empty: not for them), and how a number in it is shown."""

    key: str
    heading: str
    show: Callable[[Any], str] = str
    spread: bool = False
    """Whether its values are medians with a range."""
    text: bool = False
    """Whether it reads from the left."""

    def shown(self, value: Any) -> tuple[str, str]:
        """For people: a value, and the range that it is the median of."""
        if value is None:
            return "", ""
        if isinstance(value, Spread):
            middle, low, high = (self.show(each) for each in (value.median, value.low, value.high))
            return middle, "" if value.n == 1 or low == high else f"{low} to {high}"
        return self.show(value), ""

    def names(self) -> list[str]:
        """Those of its columns in CSV."""
        return [f"{self.key}_{part}" for part in ("median", "min", "max", "n")] if self.spread else [self.key]

    def plain(self, value: Any) -> list[Any]:
        """The cells of these columns."""
        if not self.spread:
            return [_plain(value)]
        return [None] * 4 if value is None else [*map(_plain, (value.median, value.low, value.high)), value.n]


@dataclass(frozen=True)
class Table:
    """Rows of values, one for each column; None is empty."""

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    only_csv: bool = False

    @staticmethod
    def of(
        name: str, title: str, rows: Sequence[Mapping[Column, Any]], note: str = "", *, only_csv: bool = False
    ) -> Table:
        """Each row says its columns, which are those of all rows: so every value stands beside its heading."""
        columns = list(rows[0]) if rows else []
        return Table(name, title, columns, [list(row.values()) for row in rows], note, only_csv)

    @property
    def shown(self) -> Table:
        """Without columns that have nothing in them, or nothing for people."""
        kept = [
            index
            for index, column in enumerate(self.columns)
            if column.heading and any(row[index] is not None for row in self.rows)
        ]
        rows = [[row[index] for index in kept] for row in self.rows]
        return dataclasses.replace(self, columns=[self.columns[index] for index in kept], rows=rows)

    def cells(self) -> list[list[tuple[str, str]]]:
        return [[column.shown(value) for column, value in zip(self.columns, row, strict=True)] for row in self.rows]

    def to_csv(self) -> str:
        """With all digits."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(name for column in self.columns for name in column.names())
        for row in self.rows:
            cells = zip(self.columns, row, strict=True)
            writer.writerow(plain for column, value in cells for plain in column.plain(value))
        return stream.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else "never" if value > 0 else ""
    # A spreadsheet would take text that begins like this as a formula.
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value
