"""`minga report`: figures, tables and sentences about runs or about a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from minga.cli.options import JsonOption
from minga.cli.output import present

__all__ = ["report"]


def report(
    sources: Annotated[
        list[Path], typer.Argument(metavar="RUN...|STUDY", help="Directories of runs, or of one study.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where it goes; default: the study, RUN/report, or report beside the runs."),
    ] = None,
    target: Annotated[
        float | None, typer.Option(help="Accuracy (or other metric) for the time to a target, such as 0.9.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a report on runs or on a study: one HTML page, the same in Markdown, tables as CSV, figures as SVG.

    Runs that differ only in their seed are repetitions: medians and ranges are shown.

    Examples:

      minga report runs/*

      minga report studies/bandwidth --target 0.95
    """
    from minga.report.document import make_report
    from minga.report.write import save_report, to_dict

    place = out or _place(sources)
    made = make_report(sources, target=target, out=place)
    page = save_report(made, place)
    lines = [f"- {escape(sentence)}" for sentence in made.sentences]
    lines += [f"[yellow]note:[/] {escape(note)}" for note in made.notes]
    lines.append(f"\nopen [bold]{escape(str(page))}[/] (tables as CSV and figures as SVG are beside it)")
    present(to_dict(made, page), "\n".join(lines), as_json=as_json)


def _place(sources: list[Path]) -> Path:
    """Inside a study, inside a single run, or beside several."""
    from minga.report.dataset.sources import is_study

    first = sources[0]
    if len(sources) == 1:
        return first if is_study(first) else first / "report"
    names = sorted(source.resolve().name for source in sources)
    return first.resolve().parent / f"report-{names[0]}-and-{len(sources) - 1}-more"
