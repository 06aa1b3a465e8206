"""`minga workloads`: what there is to train."""

from __future__ import annotations

import inspect
import json
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from minga.cli.options import DataOption, JsonOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from minga.runs.workload import Workload

__all__ = ["workloads"]

EMBEDDED = "embedded"


def workloads(data: DataOption = None, as_json: JsonOption = False) -> None:
    """List the built-in workloads: what each one trains, on which data, and whether these are here.

    Example:

      minga workloads --data DIR
    """
    from minga.data.directory import data_directory
    from minga.workloads import WORKLOADS

    place = data_directory(Path(data) if data else None)
    listed = [_entry(name, make, place) for name, make in WORKLOADS.items()]
    if as_json:
        print(json.dumps({"data": str(place), "workloads": listed}))
        return
    console = Console(highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False)
    table.add_column("workload", no_wrap=True)
    table.add_column("what it trains")
    table.add_column("data", no_wrap=True)
    for entry in listed:
        where = entry["data"] if entry["here"] else f"[dim]{entry['data']}, not here[/]"
        table.add_row(f"[bold]{entry['name']}[/]", escape(entry["what"]), where)
    console.print(table)
    console.print(
        f"Data lie in {escape(str(place))}; get them: minga data fetch NAME. Train: minga train digits --nodes 2. "
        "A workload of your own: minga train file.py:name",
        soft_wrap=True,
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
