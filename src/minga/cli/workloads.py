"""`minga workloads`: what there is to train."""

from __future__ import annotations

import inspect
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from minga.cli.options import DataPathOption, JsonOption
from minga.cli.output import present, say

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from minga.runs.workload import Workload

__all__ = ["workloads"]

EMBEDDED = "embedded"


def workloads(data: DataPathOption = None, as_json: JsonOption = False) -> None:
    """List the built-in workloads: what each one trains, on which data, and whether these are here.

    Example:

      minga workloads --data DIR
    """
    from minga.data.directory import data_directory
    from minga.workloads import WORKLOADS

    place = data_directory(data)
    listed = [_entry(name, make, place) for name, make in WORKLOADS.items()]
    present({"data": str(place), "workloads": listed}, lambda: _print(listed, place), as_json=as_json)


def _print(listed: list[dict[str, Any]], place: Path) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column("workload", no_wrap=True)
    table.add_column("what it trains")
    table.add_column("data", no_wrap=True)
    for entry in listed:
        where = entry["data"] if entry["here"] else f"[dim]{entry['data']}, not here[/]"
        table.add_row(f"[bold]{entry['name']}[/]", escape(entry["what"]), where)
    Console(highlight=False).print(table)
    say(
        f"Data lie in {escape(str(place))}; get them: minga data fetch NAME. Train: minga train digits --nodes 2. "
        "A workload of your own: minga train file.py:name"
    )


def _entry(name: str, make: Callable[[Path | None], Workload], place: Path) -> dict[str, Any]:
    from minga.data.sources import known_datasets

    dataset = next(
        (each for each in known_datasets().values() if any(fnmatch(name, pattern) for pattern in each.workloads)), None
    )
    return {
        "name": name,
        "what": (inspect.getdoc(make) or "").partition("\n")[0],
        "data": dataset.name if dataset is not None else EMBEDDED,
        "here": dataset is None or (place / dataset.folder).is_dir(),
    }
