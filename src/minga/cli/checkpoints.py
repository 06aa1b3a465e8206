"""`minga checkpoints`: what a run can go on from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from minga.cli.options import JsonOption
from minga.cli.output import present, say
from minga.errors import ConfigError

__all__ = ["checkpoints"]


def checkpoints(
    run: Annotated[Path, typer.Argument(help="The directory of a run.")],
    as_json: JsonOption = False,
) -> None:
    """List the checkpoints of a run: step, time, size, whether whole, which is best. Reads and checks all of them.

    Exit code 1 if there are some and none is whole.

    Example:

      minga checkpoints runs/20260101-120000-digits-ring-4
    """
    if not (run / "experiment.toml").is_file():
        raise ConfigError(f"{run} is no directory of a run: it has no experiment.toml")
    listed = _listed(run)
    present(listed, lambda: _print(run, listed), as_json=as_json)
    if listed and not any(entry["whole"] for entry in listed):
        raise typer.Exit(1)


def _listed(run: Path) -> list[dict[str, Any]]:
    from minga.training.checkpoints.files import best_of, list_checkpoints, summary_of

    found = list_checkpoints(run)
    problems = {checkpoint.name: checkpoint.problem() for checkpoint in found}
    best = best_of([checkpoint for checkpoint in found if problems[checkpoint.name] is None])
    return [
        {
            **summary_of(checkpoint),
            "whole": problems[checkpoint.name] is None,
            "problem": problems[checkpoint.name],
            "best": best is not None and checkpoint.name == best.name,
        }
        for checkpoint in found
    ]


def _print(run: Path, listed: list[dict[str, Any]]) -> None:
    from minga.report.numbers import size

    if not listed:
        say(f"{run} has no checkpoints")
        return
    table = Table()
    for column in ("step", "time", "size", "ranks", "metric", "state"):
        table.add_column(column, justify="right" if column in ("step", "size", "ranks") else "left")
    for entry in listed:
        metric = "" if entry["value"] is None else f"{entry['metric']} {entry['value']:.4f}"
        state = "whole" if entry["whole"] else f"[red]damaged[/]: {escape(entry['problem'])}"
        table.add_row(
            "?" if entry["step"] is None else f"{entry['step']:,}",
            entry["time"] or "?",
            size(entry["bytes"]),
            str(entry["ranks"] or "?"),
            f"{metric}{', best' if entry['best'] else ''}",
            state,
        )
    Console().print(table)
    say(f"Go on from the last whole one: minga train --resume {run}")
