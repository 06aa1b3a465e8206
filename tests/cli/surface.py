"""All that people can type: commands with their options, strategies and codecs with their fields, workloads.

    .venv/bin/python tests/cli/surface.py > tests/cli/surface_before.json

What stands in that file should go on working: `test_surface.py` compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import typer

from minga.base.config import fields_of
from minga.cli.main import application
from minga.codecs import CODECS
from minga.strategies import STRATEGIES
from minga.workloads import WORKLOADS

__all__ = ["commands", "surface"]


def commands() -> Iterator[tuple[str, Any]]:
    """The name of each command, such as `lab up`, and what typer makes of it; groups come before what is in them."""
    yield from _below("", typer.main.get_command(application))


def _below(path: str, group: Any) -> Iterator[tuple[str, Any]]:
    context = typer.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield f"{path}{name}", command
        if hasattr(command, "list_commands"):
            yield from _below(f"{path}{name} ", command)


def surface() -> dict[str, Any]:
    return {
        "commands": {name: _parameters(command) for name, command in commands()},
        "strategies": {name: _fields(preset) for name, preset in STRATEGIES.items()},
        "codecs": {name: _fields(preset) for name, preset in CODECS.items()},
        "workloads": list(WORKLOADS),
    }


def _parameters(command: Any) -> dict[str, str]:
    """Arguments by their place, options by each of their names; what they take, and what they are without."""
    found: dict[str, str] = {}
    for parameter in command.params:
        is_option = parameter.param_type_name == "option"
        repeatable = bool(getattr(parameter, "multiple", False)) or parameter.nargs == -1
        facts = [
            "flag" if getattr(parameter, "is_flag", False) else "values" if repeatable else "value",
            *(["required"] if parameter.required else []),
            *([f"default {parameter.default!r}"] if isinstance(parameter.default, str | int | float) else []),
        ]
        for name in (*parameter.opts, *parameter.secondary_opts) if is_option else (f"<{parameter.name}>",):
            found[name] = ", ".join(facts)
    return found


def _fields(preset: Any) -> list[str]:
    return [name for name, *_ in fields_of(preset.cls) if name not in preset.fields]


if __name__ == "__main__":
    print(json.dumps(surface(), indent=1))
