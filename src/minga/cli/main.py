"""`minga`: the commands of the registry, errors without tracebacks, exit codes that mean something.

Exit codes: 0 done, 1 the run failed, 2 what was asked for can't work, 130 interrupted, 143 asked to stop (SIGTERM).
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from minga.cli.commands import COMMANDS, Command
from minga.cli.option_groups import expanded
from minga.errors import MingaError, RankFailed, RunStopped, UsageError

__all__ = ["application", "main"]

_LOOK: dict[str, Any] = {"rich_markup_mode": "rich"}


class _CommandGroup(TyperGroup):
    """What the registry has below some words. A command is imported when it is asked for."""

    def __init__(self, *, path: str = "", **settings: Any) -> None:
        super().__init__(**settings)
        self._path = path
        self._listing = False
        inside = [name.removeprefix(path) for name in COMMANDS if name.startswith(path)]
        names: dict[str, Any] = dict.fromkeys(name for name in inside if " " not in name)
        self.commands = names  # who wants what belongs to one asks `get_command`

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands:
            return None
        entry = COMMANDS[self._path + cmd_name]
        if isinstance(entry, Command):
            return _built(cmd_name, entry, brief=self._listing)
        settings: dict[str, Any] = {"help": entry.help, "rich_help_panel": entry.panel, **_LOOK}
        return _CommandGroup(path=f"{self._path}{cmd_name} ", name=cmd_name, no_args_is_help=True, **settings)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        super().format_help(ctx, formatter)
        self._listing = False


def _built(name: str, entry: Command, *, brief: bool) -> Any:
    """`brief`: only as a line in a list, without its options, which take time to make."""
    function = pkgutil.resolve_name(entry.home)
    alone = typer.Typer(add_completion=False, **_LOOK)
    alone.command(
        name,
        help=inspect.getdoc(function),
        no_args_is_help=not entry.bare,
        context_settings=dict(entry.settings),
        rich_help_panel=entry.panel or None,
    )((lambda: None) if brief else expanded(function))
    return typer.main.get_command(alone)


def _minga() -> None:
    """Train a PyTorch model on several machines, and see which way of distributing it is best."""


application = typer.Typer(
    name="minga",
    cls=_CommandGroup,
    callback=_minga,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    **_LOOK,
)


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
