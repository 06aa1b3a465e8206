"""What commands print and write: results on standard output, what is said meanwhile on standard error.

say(f"{name} is up; Ctrl-C removes it")
present({"removed": names}, f"removed: {', '.join(names)}", as_json=as_json)
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from minga.data.progress import NO_PROGRESS, ProgressDisplay
from minga.errors import ConfigError

__all__ = ["bars", "check_writable", "present", "say"]


def say(text: str, *, style: str | None = None, markup: bool = True, stderr: bool = False) -> None:
    """A line for people. However long, it stays one line; terminals break it where they like."""
    Console(stderr=stderr, highlight=False, soft_wrap=True).print(text, style=style, markup=markup)


def present(result: Any, for_people: str | Callable[[], None], *, as_json: bool) -> None:
    """A command's result: one JSON object for machines, else a line, or what a function prints."""
    if as_json:
        print(json.dumps(result), flush=True)
    elif isinstance(for_people, str):
        say(for_people)
    else:
        for_people()


def check_writable(path: Path) -> None:
    """Raise `ConfigError` where a file can't be written, before the work whose result goes there."""
    folder = path.expanduser().parent
    if not folder.is_dir():
        raise ConfigError(f"can't write {path}: there is no directory {folder}")
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise ConfigError(f"can't write {path}: {'it is a directory' if path.is_dir() else 'not allowed'}")


def bars(*, quiet: bool) -> ProgressDisplay:
    """Bars for people at a terminal; nothing for machines, files and pipes."""
    console = Console(stderr=True)
    return NO_PROGRESS if quiet or not console.is_terminal else _Bars(console)


class _Bars(ProgressDisplay):
    def __init__(self, console: Console) -> None:
        self._console = console

    @contextlib.contextmanager
    def task(self, name: str, *, total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
        from rich import progress as rich  # most commands have no bars, and it takes a while to import

        if unit == "bytes":
            amounts: list[rich.ProgressColumn] = [rich.DownloadColumn(), rich.TransferSpeedColumn()]
        else:
            amounts = [rich.MofNCompleteColumn(), rich.TextColumn(unit)]
        columns = [rich.TextColumn("{task.description}"), rich.BarColumn(), *amounts, rich.TimeRemainingColumn()]
        with rich.Progress(*columns, console=self._console) as shown:
            number = shown.add_task(name, total=total)
            yield lambda done: shown.advance(number, done)
