"""`minga bench`: a study, run by run; it may be interrupted and started again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from minga.cli.options import JsonOption
from minga.cli.output import present, say
from minga.errors import ConfigError, MingaError

if TYPE_CHECKING:
    from minga.study import Outcome, Study

__all__ = ["bench"]


def bench(
    study: Annotated[str | None, typer.Argument(help="A shipped study's name (--list), or a study.toml.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The study's small version: minutes, not hours.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The study's directory; default: studies/NAME.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin again; what is there is moved aside.")] = False,
    list_studies: Annotated[bool, typer.Option("--list", help="Show the shipped studies.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show cells, order and estimated time; run none.")] = False,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no report at the end.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a study: all of its cells, several times each, in mixed order.

    It may be interrupted or killed at any moment: started again, it runs what is missing, and what failed.

    Exit code: 0 all done, 1 some runs failed, 2 the study can't work (nothing has run), 130 interrupted.

    Examples:

      minga bench --list

      minga bench quito --quick

      minga bench my_study.toml --out studies/mine --dry-run
    """
    if list_studies:
        _list(as_json)
        return
    if study is None:
        raise ConfigError("name a study (minga bench --list shows those that are shipped), or give a study.toml")
    from minga.study import load_study

    loaded = load_study(study, quick=quick)
    directory = (out or Path("studies") / loaded.name).expanduser()
    if dry_run:
        _dry_run(loaded, directory, as_json)
        return
    outcome = _run(loaded, directory, fresh=fresh, report=not no_report, quiet=as_json)
    report = None if no_report else _write_report(outcome)
    present(_to_dict(outcome, report), lambda: _print(outcome, report), as_json=as_json)
    if outcome.failed:
        raise typer.Exit(1)


def _list(as_json: bool) -> None:
    from minga.study import load_study, shipped_studies

    studies = [load_study(name) for name in shipped_studies()]
    listed = [
        {key: getattr(each, key) for key in ("name", "title", "question")}
        | {"cells": len(each.cells), "runs": len(each.jobs)}
        for each in studies
    ]
    lines = [
        f"[bold]{each.name}[/]  {each.title}: {len(each.cells)} cells, {len(each.jobs)} runs\n    {each.question}"
        for each in studies
    ]
    present({"studies": listed}, "\n".join(lines), as_json=as_json)


def _dry_run(study: Study, directory: Path, as_json: bool) -> None:
    from minga.report.numbers import duration
    from minga.study import outcome_of
    from minga.study.estimate import Forecast
    from minga.study.runner import weights_of

    done = {result.identity for result in outcome_of(study, directory).done}
    first = study.pretrained if study.pretrained and not weights_of(study, directory).exists() else None
    forecast = Forecast([*([first] if first else []), *study.cells])
    jobs = [(job, job.identity in done, forecast.seconds(job.cell)) for job in study.jobs]
    left = [seconds + study.cool_down_seconds for _, is_done, seconds in jobs if not is_done]
    pretraining = forecast.seconds(first) if first and left else 0.0
    whole_seconds = sum(left) + pretraining
    listed = [
        {"cell": job.cell.identity, "label": job.cell.label, "repetition": job.repetition, "done": is_done}
        | {"values": dict(job.cell.values), "environment": job.cell.environment, "estimated_seconds": seconds}
        for job, is_done, seconds in jobs
    ]
    whole = {"study": study.name, "directory": str(directory), "runs": listed}
    estimated = {"pretraining_estimated_seconds": pretraining, "estimated_seconds": whole_seconds}
    lines = [f"[bold]{escape(study.title)}[/]: {escape(study.question)}"]
    if pretraining:
        about = f"about {duration(pretraining)} (estimated)"
        lines.append(f"      pretraining, whose weights all runs begin with: {about}")
    for number, (job, is_done, seconds) in enumerate(jobs, start=1):
        state = "done" if is_done else f"about {duration(seconds)} (estimated)"
        lines.append(f"{number:4}  {escape(str(job))}: {state}")
    lines.append(
        f"{len(left)} of {len(jobs)} runs to do: about {duration(whole_seconds)} (estimated); into {directory}"
    )
    present(whole | estimated, "\n".join(lines), as_json=as_json)


def _run(study: Study, directory: Path, *, fresh: bool, report: bool, quiet: bool) -> Outcome:
    from minga.study import StudyView, outcome_of, run_study, study_view_for

    console = Console(stderr=True)
    try:
        with StudyView() if quiet and not console.is_terminal else study_view_for(console) as view:
            return run_study(study, directory, view, fresh=fresh)
    except KeyboardInterrupt:
        outcome = outcome_of(study, directory)
        missing = len(study.jobs) - len(outcome.done)
        say(
            f"interrupted; all processes of the run are ended. {len(outcome.done)} runs are done, {missing} are left: "
            "the same command goes on with these",
            stderr=True,
        )
        if report:
            _write_report(outcome)
        raise


def _write_report(outcome: Outcome) -> Path | None:
    """The report on what is there; None while there are no results."""
    if not outcome.done:
        return None
    from minga.report.write import write_report

    try:
        return write_report([outcome.directory], outcome.directory)
    except MingaError as error:  # the results are there all the same, and are shown
        say(f"no report: {error}", markup=False, stderr=True)
        return None


def _print(outcome: Outcome, report: Path | None) -> None:
    from minga.study.answer import answer_table, rows_of

    say(f"[bold]{escape(outcome.study.title)}[/]: {escape(outcome.study.question)}")
    Console(highlight=False).print(answer_table(rows_of(outcome)))
    for result in outcome.failed:
        say(f"[red]failed[/]: {escape(str(result))}: {escape(result.error or '')}")
    if outcome.failed:
        say("the same command tries the failed ones again")
    say(f"everything is in {outcome.directory}")
    if report is not None:
        say(f"report: {report}")


def _to_dict(outcome: Outcome, report: Path | None) -> dict[str, Any]:
    from minga.study.answer import rows_of

    return {
        "study": outcome.study.name,
        "question": outcome.study.question,
        "directory": str(outcome.directory),
        "report": str(report) if report else None,
        "done": len(outcome.done),
        "failed": [
            {"label": result.label, "repetition": result.repetition, "error": result.error} for result in outcome.failed
        ],
        "cells": [row.to_dict() for row in rows_of(outcome)],
    }
