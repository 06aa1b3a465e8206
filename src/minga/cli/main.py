"""`minga`: the commands of the registry, errors without tracebacks, exit codes that mean something.

Exit codes: 0 done, 1 the run failed, 2 what was asked for can't work, 130 interrupted, 143 asked to stop (SIGTERM).
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from minga.cli.commands import COMMANDS, Command, Group
from minga.cli.option_groups import expanded
from minga.errors import MingaError, RankFailed, RunStopped, UsageError

__all__ = ["application", "main"]

_LOOK: dict[str, Any] = {"rich_markup_mode": "rich"}


class _Commands(Mapping[str, Any]):
    """What the registry has below some words, by the next word. A command is imported when it is asked for.

    `brief`: only as a line in a list, without its options, which take time to make.
    """

    def __init__(self, path: str, *, brief: bool = False) -> None:
        self._path = path
        self._brief = brief
        inside = [name.removeprefix(path) for name in COMMANDS if name.startswith(path)]
        self._names = [name for name in inside if " " not in name]

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        entry = COMMANDS[self._path + name]
        if isinstance(entry, Group):
            panel = {"rich_help_panel": entry.panel}
            return _CommandGroup(
                path=f"{self._path}{name} ", name=name, help=entry.help, no_args_is_help=True, **panel, **_LOOK
            )
        return _built(name, entry, brief=self._brief)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class _CommandGroup(TyperGroup):
    def __init__(self, *, path: str = "", **settings: Any) -> None:
        super().__init__(**settings)
        self._path = path
        self.commands = _Commands(path)  # type: ignore[assignment]  # nobody adds to it

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.commands = _Commands(self._path, brief=True)  # type: ignore[assignment]
        super().format_help(ctx, formatter)
        self.commands = _Commands(self._path)  # type: ignore[assignment]


def _built(name: str, entry: Command, *, brief: bool) -> Any:
    module, _, attribute = entry.home.partition(":")
    function = getattr(importlib.import_module(module), attribute)
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
