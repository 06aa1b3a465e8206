"""The commands, and what they have in common: errors without tracebacks, exit codes that mean something.

Exit codes: 0 done, 1 the run failed, 2 what was asked for can't work, 130 interrupted, 143 asked to stop (SIGTERM).
"""

from __future__ import annotations

import sys

import typer
from rich.console import Console
from rich.markup import escape

from minga.cli import (
    bench,
    caption,
    cert,
    checkpoints,
    compare,
    data,
    doctor,
    join,
    lab,
    launch,
    plan,
    probe,
    profile,
    report,
    simulate,
    strategies,
    train,
    workloads,
    write,
)
from minga.errors import MingaError, RankFailed, RunStopped, UsageError

__all__ = ["application", "main"]

application = typer.Typer(
    name="minga",
    help="Train a PyTorch model on several machines, and see which way of distributing it is best.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _module in (
    train,
    join,
    checkpoints,
    data,
    compare,
    bench,
    report,
    caption,
    write,
    profile,
    probe,
    simulate,
    plan,
    launch,
    strategies,
    workloads,
    lab,
    cert,
    doctor,
):
    _module.register(application)


def main() -> None:
    """The `minga` command."""
    errors = Console(stderr=True, soft_wrap=True)
    try:
        application()
    except MingaError as error:
        if isinstance(error, RankFailed) and error.traceback:
            errors.print(escape(error.traceback.rstrip()), style="dim", highlight=False)
        errors.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False)
        sys.exit(2 if isinstance(error, UsageError) else 143 if isinstance(error, RunStopped) else 1)
