"""Kill, stop and cut off parts of real runs, and see what becomes of them (`make drills` runs all of it).

    PYTHONPATH=tests python -m drills                                  # all faults, about 25 minutes
    PYTHONPATH=tests python -m drills --short                          # a few, in less than a minute
    PYTHONPATH=tests python -m drills --only kill-rank-0 --trials 5

What is promised, and how it is tested: docs/faults.md.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from minga.cli.options import JsonOption
from minga.errors import MingaError, UsageError, unknown

if TYPE_CHECKING:
    from drills.fault import Fault
    from drills.outcome import Outcome

__all__ = ["drills"]

# In a file nobody minds a long line; in a column of four letters nobody can read.
_WIDE = 160


def drills(
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="FAULT", help="Just this one. Repeatable; --list tells them.")
    ] = None,
    short: Annotated[bool, typer.Option("--short", help="A few faults, in less than a minute.")] = False,
    trials: Annotated[int | None, typer.Option(min=1, help="Of each fault; default: its own number.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides when and to whom it happens.")] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where drills.json, .md and .svg go; default: nowhere.")
    ] = None,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the runs stay; default: they don't.")] = None,
    list_them: Annotated[bool, typer.Option("--list", help="Only tell which faults there are.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Do real faults to real runs on this machine, and check what is promised (docs/faults.md).

    Exit code 1 if a promise was not kept.

    Example:

      PYTHONPATH=tests python -m drills --only kill-rank-0 --trials 5
    """
    from drills.catalogue import TORCHRUN, catalogue, short_catalogue
    from drills.drill import Drill
    from drills.table import as_document, as_markdown, as_table, rows_of

    faults = short_catalogue() if short else catalogue()
    told = {fault.name: {"words": fault.words, "promised": fault.promise.to_dict()} for fault in faults}
    told[TORCHRUN] = {"words": "kill -9 of a rank, torchrun (for comparison)", "promised": {}}
    words = {name: str(each["words"]) for name, each in told.items()}
    chosen = _chosen(faults, words, only)
    if list_them:
        print(json.dumps(words) if as_json else "\n".join(f"{name:22} {text}" for name, text in words.items()))
        return
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="minga-drills-") as temporary:
        folder = keep if keep is not None else Path(temporary)
        drill = Drill(folder, seed=seed, told=lambda text: console.print(text, markup=False))
        for outcome in drill.run(chosen, trials):
            outcomes.append(outcome)
            _tell(console, outcome)
        if TORCHRUN in (only or ()) or not (only or short):
            outcomes.append(drill.torchrun())
            _tell(console, outcomes[-1])
    command = " ".join(
        [
            "PYTHONPATH=tests python -m drills",
            *(["--short"] if short else []),
            *(f"--only {name}" for name in only or []),
        ]
    )
    command += f" --seed {seed}" + (f" --trials {trials}" if trials else "")
    rows = rows_of(outcomes, told)
    document = as_document(outcomes, told, seed=seed, command=command)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "drills.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        (out / "drills.md").write_text(as_markdown(rows, command), encoding="utf-8")
        _draw(console, document, out / "drills.svg")
    if as_json:
        print(json.dumps(document))
    else:
        screen = Console()
        Console(width=None if screen.is_terminal else _WIDE).print(as_table(rows))
    untried = sum(not row.tried for row in rows)
    if untried:
        console.print(f"{untried} of {len(rows)} faults could not be tried on this machine; the table says why")
    if not document["kept"]:
        raise typer.Exit(1)


def _draw(console: Console, document: dict[str, Any], file: Path) -> None:
    from drills.figure import draw

    try:
        file.write_text(draw(document), encoding="utf-8")
    except UsageError as error:  # the table says the same
        console.print(f"no figure: {error}", markup=False)


def _chosen(faults: list[Fault], words: dict[str, str], only: list[str] | None) -> list[Fault]:
    for name in only or []:
        if name not in words:
            raise unknown("fault", name, words)
    return [fault for fault in faults if not only or fault.name in only]


def _tell(console: Console, outcome: Outcome) -> None:
    if outcome.skipped:
        text = f"skipped: {outcome.skipped}"
    elif not outcome.survived:
        text = f"NOT SURVIVED: {outcome.problem}"
    else:
        recovery = f"{outcome.recovery_seconds:.2f} s" if outcome.recovery_seconds is not None else "no time"
        text = f"{recovery} without a step, {outcome.lost_steps} steps lost, accuracy {outcome.accuracy}"
        text += f"; NOT KEPT: {'; '.join(outcome.broken)}" if outcome.broken else ""
    console.print(f"  {outcome.fault}: {text} ({outcome.seconds:.0f} s)", markup=False)


if __name__ == "__main__":
    try:
        typer.run(drills)
    except MingaError as error:
        Console(stderr=True, soft_wrap=True).print(f"error: {error}", markup=False)
        sys.exit(2)
