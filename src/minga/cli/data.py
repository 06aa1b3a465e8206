"""`minga data`: data sets listed, fetched, verified."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from minga.cli.options import DataPathOption, JsonOption
from minga.cli.output import bars, present, say
from minga.errors import DataError

if TYPE_CHECKING:
    from minga.data.checksums import FileCheck
    from minga.data.sources import KnownDataset

__all__ = ["fetch", "list_datasets", "verify"]


def list_datasets(data: DataPathOption = None, as_json: JsonOption = False) -> None:
    """List the data sets that Minga knows: what they are, whose, whether they are here, what trains on them.

    Example:

      minga data list
    """
    from minga.data.directory import data_directory
    from minga.data.fetching.verify import is_here
    from minga.data.sources import known_datasets

    place = data_directory(data)
    listed = [
        {
            "name": dataset.name,
            "what": dataset.title,
            "bytes": dataset.bytes,
            "licence": dataset.licence,
            "citation": dataset.citation,
            "homepage": dataset.homepage,
            "note": dataset.note,
            "here": is_here(dataset, place),
            "folder": str(place / dataset.folder),
            "workloads": _workloads(dataset),
        }
        for dataset in known_datasets().values()
    ]
    present({"data": str(place), "datasets": listed}, lambda: _print_list(listed, place), as_json=as_json)


def fetch(
    name: Annotated[str, typer.Argument(help="A data set of 'minga data list'.")],
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", help="Take it from this folder or archive instead of the network."),
    ] = None,
    link: Annotated[bool, typer.Option("--link", help="With --from: link to its files instead of copying.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also what training does without, such as photographs behind features.")
    ] = False,
    data: DataPathOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring a data set here, from where it is published, or from a folder without a network.

    A download that broke off goes on where it was. Each file is checked before it gets its name.

    Examples:

      minga data fetch mnist

      minga data fetch flickr8k --from /media/stick --data DIR
    """
    from minga.data.directory import data_directory
    from minga.data.fetching.fetch import fetch as bring
    from minga.data.sources import known_dataset

    dataset, place = known_dataset(name), data_directory(data)
    if link and source is None:
        raise DataError("--link needs --from DIR: there is nothing to link to in a download")
    if not as_json:
        say(f"[bold]{dataset.name}[/]: {escape(dataset.title)}\nlicence: {escape(dataset.licence)}")
        say(f"cite: {escape(dataset.citation)}")
        if dataset.note:
            say(f"note: {escape(dataset.note)}")
    brought = bring(
        dataset,
        place,
        source=source.expanduser() if source is not None else None,
        link=link,
        everything=everything,
        progress=bars(quiet=as_json),
    )
    files = [{"name": each.name, "state": each.state, "path": str(each.path)} for each in brought]
    lines = [f"{each.state:>8}  {escape(str(each.path))}" for each in brought]
    if workloads := _workloads(dataset):
        lines.append(f"Train on it: minga train {workloads[0]}{f' --data {place}' if data is not None else ''}")
    answer = {"name": dataset.name, "licence": dataset.licence, "files": files}
    present(answer, "\n".join(lines), as_json=as_json)


def verify(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A data set, as minga data list names them.")],
    data: DataPathOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read all of a data set and compare checksums. Exit code 1 if something is damaged or missing.

    Example:

      minga data verify mnist

      minga data verify prepared/fish
    """
    from minga.data.directory import data_directory
    from minga.data.fetching.verify import verify as examine
    from minga.data.prepared.manifest import is_prepared, verify_prepared
    from minga.data.sources import known_dataset

    if is_prepared(Path(name)):
        checked = verify_prepared(Path(name), progress=bars(quiet=as_json))
        _print_checks(name, checked, "minga data prepare ... --replace", as_json=as_json)
        return
    dataset, place = known_dataset(name), data_directory(data)
    checks = examine(dataset, place, progress=bars(quiet=as_json))
    where = f" --data {shlex.quote(str(data))}" if data is not None else ""
    _print_checks(name, checks, f"minga data fetch {dataset.name}{where}", as_json=as_json)


def _print_checks(name: str, checks: list[FileCheck], remedy: str, *, as_json: bool) -> None:
    wrong = [each for each in checks if each.wrong]
    listed = [{"name": each.name, "state": each.state, "problem": each.problem} for each in checks]
    lines = []
    for each in checks:
        color = "red" if each.wrong else "green" if each.state == "whole" else "yellow"
        problem = f": {escape(each.problem)}" if each.problem else ""
        lines.append(f"[{color}]{each.state:>9}[/]  {escape(each.name)}{problem}")
    if wrong:
        lines.append(f"{len(wrong)} wrong; get them again: {remedy}")
    elif any(each.state == "unchecked" for each in checks):
        lines.append(f"nothing wrong was found, but not all of {name} could be checked")
    else:
        lines.append(f"{name} is whole")
    present({"name": name, "whole": not wrong, "findings": listed}, "\n".join(lines), as_json=as_json)
    if wrong:
        raise typer.Exit(1)


def _workloads(dataset: KnownDataset) -> list[str]:
    """Names of built-in workloads that train on it."""
    from fnmatch import fnmatch

    from minga.workloads import WORKLOADS

    return [name for name in WORKLOADS if any(fnmatch(name, pattern) for pattern in dataset.workloads)]


def _print_list(listed: list[dict[str, Any]], place: Path) -> None:
    from minga.report.numbers import size

    table = Table()
    for column in ("name", "what", "size", "licence", "here", "workloads"):
        table.add_column(column, justify="right" if column == "size" else "left", no_wrap=column in ("name", "size"))
    for entry in listed:
        table.add_row(
            escape(entry["name"]),
            escape(entry["what"]),
            size(entry["bytes"]) if entry["bytes"] else "unknown",
            escape(entry["licence"]),
            "[green]yes[/]" if entry["here"] else "no",
            escape(", ".join(entry["workloads"])),
        )
    Console(highlight=False).print(table)
    say(f"They lie in {place}. Get one: minga data fetch NAME [--from DIR]")
