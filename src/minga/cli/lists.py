"""`minga strategies` and `minga workloads`: what there is to choose from, and to train."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from minga.cli.options import DataPathOption, JsonOption
from minga.cli.output import present, say

if TYPE_CHECKING:
    from pathlib import Path

    from minga.workloads import BuiltIn

__all__ = ["strategies", "workloads"]


def strategies(as_json: JsonOption = False) -> None:
    """List strategies and codecs, with one line each and their fields.

    Example:

      minga strategies --json
    """
    from minga.codecs import CODECS
    from minga.strategies import STRATEGIES

    listed = {"strategies": _described(STRATEGIES), "codecs": _described(CODECS)}
    present(listed, lambda: _print_strategies(listed), as_json=as_json)


def _print_strategies(listed: Mapping[str, list[dict[str, Any]]]) -> None:
    console = Console()
    for family, entries in listed.items():
        console.print(f"[bold underline]{family}[/]")
        for entry in entries:
            console.print(f"[bold]{entry['name']}[/]  {escape(entry['summary'])}", highlight=False)
            for field in entry["fields"]:
                default = "" if field["default"] is None else f" = {field['default']}"
                text = f"{field['name']}{default}  [dim]{escape(field['type'])}: {escape(field['about'])}[/]"
                console.print(Padding(text, (0, 0, 0, 4)), highlight=False)
    console.print("Use: minga train digits --nodes 2 --strategy ps:mode=ssp,staleness=3 --codec half", highlight=False)


def _described(presets: Any) -> list[dict[str, Any]]:
    from minga.base.config import fields_of
    from minga.base.spec import Named, describe

    entries = []
    for name, preset in presets.items():
        fields = [
            {
                "name": field,
                "type": kind,
                "default": describe(default) if isinstance(default, Named) else default,
                "about": " ".join(about.split()),
            }
            for field, kind, default, about in fields_of(preset.cls)
            if field not in preset.fields
        ]
        entries.append({"name": name, "summary": preset.describe(), "fields": fields})
    return entries


def workloads(data: DataPathOption = None, as_json: JsonOption = False) -> None:
    """List the built-in workloads: what each one trains, on which data, and whether these are here.

    Example:

      minga workloads --data DIR
    """
    from minga.data.directory import data_directory
    from minga.workloads import WORKLOADS

    place = data_directory(data)
    listed = [_entry(name, workload, place) for name, workload in WORKLOADS.items()]
    present({"data": str(place), "workloads": listed}, lambda: _print_workloads(listed, place), as_json=as_json)


def _print_workloads(listed: list[dict[str, Any]], place: Path) -> None:
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


def _entry(name: str, workload: BuiltIn, place: Path) -> dict[str, Any]:
    from minga.data.sources import known_datasets

    dataset = next(
        (each for each in known_datasets().values() if any(fnmatch(name, pattern) for pattern in each.workloads)), None
    )
    return {
        "name": name,
        "what": workload.about,
        "data": dataset.name if dataset is not None else "embedded",
        "here": dataset is None or (place / dataset.folder).is_dir(),
    }
