"""Progress of long work as bars, on standard error, so that standard output stays for results."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as RichProgress

from minga.data.progress import NO_PROGRESS, ProgressDisplay

__all__ = ["bars"]


def bars(*, quiet: bool) -> ProgressDisplay:
    """Bars for people at a terminal; nothing for machines, files and pipes."""
    console = Console(stderr=True)
    return NO_PROGRESS if quiet or not console.is_terminal else _Bars(console)


class _Bars(ProgressDisplay):
    def __init__(self, console: Console) -> None:
        self._console = console

    def task(self, name: str, *, total: int | None, unit: str) -> AbstractContextManager[Callable[[int], None]]:
        return self._bar(name, total, unit)

    @contextlib.contextmanager
    def _bar(self, name: str, total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
        amounts: list[ProgressColumn] = (
            [DownloadColumn(), TransferSpeedColumn()] if unit == "bytes" else [MofNCompleteColumn(), TextColumn(unit)]
        )
        columns = [TextColumn("{task.description}"), BarColumn(), *amounts, TimeRemainingColumn()]
        with RichProgress(*columns, console=self._console) as shown:
            number = shown.add_task(name, total=total)
            yield lambda done: shown.advance(number, done)
