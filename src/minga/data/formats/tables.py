"""Tables, CSV or Parquet: one column, the target, is predicted from the others.

Numbers stay numbers; a column of words becomes one number (0 or 1) for each word that occurs in it. What a column is
like is found in a first pass over the table, so that it need not fit into memory.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minga.data.formats.base import BadSample, OnePassReader, RawSample
from minga.data.formats.rows import Rows, open_rows
from minga.errors import DataError, unknown

__all__ = ["TableChoice", "TableReader"]

_MOST_WORDS = 1000
# How programs write a missing number. In a column of words they are words: "none" may well be one of its kinds.
_NO_NUMBER = {"na", "n/a", "nan", "null", "none", "-", "?", "inf", "-inf", "+inf", "infinity", "-infinity"}
_MOST_CLASSES = 100
# 12,500 or 1.234,50: nobody but its author knows what the comma is.
_WITH_COMMAS = re.compile(r"[-+]?[\d.]+(,[\d.]+)+")
# A word among so many numbers is a slip of somebody: it costs a row, and does not make words of all the others.
_MANY_NUMBERS = 100
_NUMBERS_PER_SLIP = 99


@dataclass(frozen=True, kw_only=True)
class TableChoice:
    """What is made of a table."""

    target: str | None = None
    """The column that is predicted; default: the last one."""

    columns: tuple[str, ...] = ()
    """Those that it is predicted from; default: all others."""

    words: tuple[str, ...] = ()
    """Columns of numbers that are names rather than amounts, such as postal codes."""

    task: str = "auto"
    """"classes", "numbers", or "auto": classes where the target is words or few whole numbers."""

    missing: str = "skip"
    """Rows with empty fields: "skip" them, or put the column's "mean" (a column of words has an own one for empty)."""

    def __post_init__(self) -> None:
        for name, choices in (("task", ("auto", "classes", "numbers")), ("missing", ("skip", "mean"))):
            if getattr(self, name) not in choices:
                raise unknown(f"{name} of a table", getattr(self, name), choices)


@dataclass
class _ColumnFacts:
    """What was found in a column."""

    whole: bool = True
    values: set[str] | None = field(default_factory=set)
    """Those that occur; None: too many."""
    count: int = 0
    """Of numbers."""
    total: float = 0.0
    empty: int = 0
    words: int = 0
    """What is neither a number nor says that there is none."""
    word: str = ""
    """The first of these."""
    with_commas: int = 0
    """Those of them that look like numbers."""

    @property
    def numeric(self) -> bool:
        """Whether it is one of numbers, but for a slip or two."""
        return not self.words or self.count >= max(_MANY_NUMBERS, _NUMBERS_PER_SLIP * self.words)

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def refuse_commas(self, name: str, otherwise: str) -> None:
        """`DataError` where words are numbers in all likelihood; each would become a word of its own."""
        if not self.numeric and self.words == self.with_commas:
            raise DataError(
                f"the column {name!r} has numbers with commas, such as {self.word!r}: write them as 1234.5 (with "
                f"semicolons between columns 1234,5 will do), or use {otherwise} if they are names"
            )

    def see(self, value: Any) -> None:
        if not _word(value):
            self.empty += 1
            return
        number = _number(value)
        if number is None:
            if _word(value).lower() not in _NO_NUMBER:
                self.words, self.word = self.words + 1, self.word or _word(value)
                self.with_commas += _WITH_COMMAS.fullmatch(_word(value)) is not None
        else:
            self.count += 1
            self.total += number
            self.whole = self.whole and number == int(number)
        if self.values is not None:
            self.values.add(_word(value))
            if len(self.values) > _MOST_WORDS:
                self.values = None


class TableReader(OnePassReader):
    """Rows of a table as vectors."""

    def __init__(self, path: Path, choice: TableChoice) -> None:
        self._rows: Rows = open_rows(path)
        names = self._rows.columns
        target = choice.target if choice.target is not None else names[-1]
        for name in (target, *choice.columns, *choice.words):
            if name not in names:
                raise unknown(f"column of {path.name}", name, names)
        self._target = names.index(target)
        chosen = [name for name in (choice.columns or names) if name != target]
        if not chosen:
            raise DataError(f"{path} has no column besides {target!r} to predict it from")
        found = [_ColumnFacts() for _ in names]
        # What a split needs to know of each row, in four bytes: the number of its target among those that occur.
        targets, seen = array("i"), {"": -1}
        for row in self._rows:
            word = ""
            if len(row) == len(names):  # in others, values may be of other columns
                word = _word(row[self._target])
                for column, value in zip(found, row, strict=True):
                    column.see(value)
            targets.append(seen.get(word, -2))
            if targets[-1] == -2 and len(seen) <= _MOST_WORDS:
                targets[-1] = seen[word] = len(seen) - 1
        self._count = len(targets)
        if not self._count:
            raise DataError(f"{path} has no rows")
        self._missing = choice.missing
        self._encoders = [_ColumnEncoder.of(names[i], i, found[i], choice) for i in map(names.index, chosen)]
        self._set_target(target, found[self._target], np.array(targets, dtype=np.int64), list(seen)[1:], choice.task)
        width = [name for encoder in self._encoders for name in encoder.names]
        self.facts = {"columns": width, "target": target, "task": "classes" if self.classes else "numbers"}

    def _set_target(
        self, name: str, column: _ColumnFacts, targets: NDArray[np.int64], words: list[str], task: str
    ) -> None:
        few = column.values is not None and len(column.values) <= _MOST_CLASSES
        if task == "numbers" or (task == "auto" and column.numeric and not (column.whole and few)):
            if not column.numeric:
                column.refuse_commas(name, "--task classes")
                raise DataError(f"the column {name!r} has words, such as {column.word!r}; use --task classes")
            return
        if task == "auto":
            column.refuse_commas(name, "--task classes")
        if column.values is None:
            raise DataError(f"the column {name!r} has more than {_MOST_WORDS} different values; use --task numbers")
        # Who asks for classes means words among them too.
        numeric = column.numeric and not (task == "classes" and column.words)
        order = (lambda word: (float(word), word)) if numeric else None
        self.classes = sorted((word for word in column.values if not numeric or _number(word) is not None), key=order)
        number = {word: index for index, word in enumerate(self.classes)}
        self.labels = np.array([number.get(word, -1) for word in words] + [-1], dtype=np.int64)[targets]

    def learn_from(self, training: NDArray[np.int64]) -> None:
        """The means that empty fields get."""
        if self._missing != "mean":
            return
        columns = {encoder.index: _ColumnFacts() for encoder in self._encoders if encoder.words is None}
        chosen = np.zeros(self._count, dtype=bool)
        chosen[training] = True
        for row, wanted in zip(self._rows, chosen, strict=False):
            if wanted and len(row) == len(self._rows.columns):
                for index, column in columns.items():
                    column.see(row[index])
        self._encoders = [
            replace(encoder, mean=columns[encoder.index].mean) if encoder.index in columns else encoder
            for encoder in self._encoders
        ]

    def __len__(self) -> int:
        return self._count

    def name_of(self, index: int) -> str:
        return f"row {index + 1}"

    def rows(self) -> Iterator[Sequence[Any]]:
        return iter(self._rows)

    def sample_of(self, index: int, row: Sequence[Any]) -> RawSample:
        if len(row) != len(self._rows.columns):
            raise BadSample(f"it has {len(row)} fields instead of {len(self._rows.columns)}")
        inputs = np.concatenate([encoder.read(row[encoder.index], self._missing) for encoder in self._encoders])
        if self.labels is not None:
            if self.labels[index] < 0:
                word = _word(row[self._target])
                raise BadSample(f"its target is {f'{word!r}, not a number' if word else 'empty'}")
            return {"inputs": inputs, "targets": self.labels[index]}
        value = _number(row[self._target])
        if value is None:
            raise BadSample(f"its target is {row[self._target]!r}, which is not a number")
        return {"inputs": inputs, "targets": np.float32(value)}  # type: ignore[dict-item]


@dataclass(frozen=True)
class _ColumnEncoder:
    """What one column becomes."""

    name: str
    index: int
    words: tuple[str, ...] | None
    """None: a number."""
    mean: float

    @classmethod
    def of(cls, name: str, index: int, column: _ColumnFacts, choice: TableChoice) -> _ColumnEncoder:
        if column.numeric and name not in choice.words:
            return cls(name, index, None, column.mean)
        if name not in choice.words:
            column.refuse_commas(name, f"--words {name}")
        if column.values is None:
            raise DataError(
                f"the column {name!r} has more than {_MOST_WORDS} different words; leave it out with --columns"
            )
        empty = [""] if column.empty and choice.missing == "mean" else []
        return cls(name, index, (*sorted(column.values), *empty), column.mean)

    @property
    def names(self) -> list[str]:
        return [self.name] if self.words is None else [f"{self.name}={word}" for word in self.words]

    def read(self, value: Any, missing: str) -> NDArray[np.float32]:
        empty = not _word(value) or (self.words is None and _number(value) is None)
        slip = empty and _word(value) and _word(value).lower() not in _NO_NUMBER
        if empty and (slip or missing == "skip"):
            raise BadSample(f"its {self.name!r} is {f'{value!r}, not a number' if _word(value) else 'empty'}")
        if self.words is None:
            return np.array([self.mean if empty else _number(value)], dtype=np.float32)
        word = "" if empty else _word(value)
        return np.array([word == each for each in self.words], dtype=np.float32)


def _number(value: Any) -> float | None:
    """As a finite number; None if it is none. Yes and no are words, as in CSV."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _word(value: Any) -> str:
    return "" if value is None else str(value).strip()
