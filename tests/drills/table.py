"""Outcomes as a table: a line for each fault, in a terminal, as Markdown and as JSON."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

import minga
from drills.outcome import Outcome

__all__ = ["COLUMNS", "Row", "as_document", "as_markdown", "as_table", "rows_of"]

COLUMNS = ("fault", "trials", "survived", "work lost", "recovery", "accuracy", "without", "promises")


@dataclass(frozen=True)
class Row:
    """All trials of one fault, as words."""

    cells: tuple[str, ...]
    kept: bool
    tried: bool


def rows_of(outcomes: Sequence[Outcome], faults: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """A row for each fault, in the order in which they come; `faults` as for `as_document`."""
    rows = []
    for name in dict.fromkeys(outcome.fault for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.fault == name]
        tried = [outcome for outcome in own if not outcome.skipped]
        if not tried:
            rows.append(Row((faults[name]["words"], "0", *["-"] * 5, own[0].skipped), kept=True, tried=False))
            continue
        survived = [outcome for outcome in tried if outcome.survived]
        broken = list(dict.fromkeys(each for outcome in tried for each in outcome.broken))
        ideal = [outcome.ideal for outcome in survived if outcome.ideal is not None]
        told = (
            "-"
            if not faults[name]["promised"]
            else f"kept ({100 * min(ideal):.0f} % of the ideal steps)"
            if ideal
            else "kept"
        )
        rows.append(
            Row(
                (
                    faults[name]["words"],
                    str(len(tried)),
                    str(len(survived)),
                    _worst([outcome.lost_steps for outcome in survived], "{:.3g} steps"),
                    _worst([outcome.recovery_seconds for outcome in survived], "{:.1f} s"),
                    _median([outcome.accuracy for outcome in survived]),
                    _median([outcome.undisturbed for outcome in survived]),
                    "; ".join(broken) or told,
                ),
                kept=not broken,
                tried=True,
            )
        )
    return rows


def _worst(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return form.format(max(known)) if known else "-"


def _median(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{100 * statistics.median(known):.1f} %" if known else "-"


def as_table(rows: Sequence[Row]) -> Table:
    table = Table()
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("fault", "promises") else "right")
    for row in rows:
        table.add_row(*row.cells, style=None if row.kept and row.tried else "red" if not row.kept else "dim")
    return table


def as_markdown(rows: Sequence[Row], command: str) -> str:
    """With the command that made it."""
    lines = [f"`{command}`; work lost and recovery are the worst of all trials, accuracy is the median.", ""]
    lines += [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row.cells)} |" for row in rows]
    return "\n".join(lines) + "\n"


def as_document(
    outcomes: Sequence[Outcome], faults: Mapping[str, Mapping[str, Any]], *, seed: int, command: str
) -> dict[str, Any]:
    """Everything, for machines; `faults`: for each name what people call it (`words`) and what is `promised`."""
    tried = dict.fromkeys(outcome.fault for outcome in outcomes)
    return {
        "command": command,
        "version": minga.__version__,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "seed": seed,
        "kept": not any(outcome.broken for outcome in outcomes),
        "faults": {name: dict(faults[name]) for name in tried},
        "outcomes": [outcome.to_dict() for outcome in outcomes],
    }
