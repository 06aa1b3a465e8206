"""All that people can type: commands with their options, an experiment's fields, strategies, codecs, workloads.

.venv/bin/python tests/cli/surface.py > tests/cli/surface_before.json      # what should go on working
.venv/bin/python tests/cli/surface.py --reference > docs/reference.md      # the same for people
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import typer

from minga.base.config import Config, fields_of
from minga.base.spec import Named, Preset, describe
from minga.cli.commands import COMMANDS, Command
from minga.cli.main import application
from minga.cli.options import EXPERIMENT_OPTIONS
from minga.codecs import CODECS
from minga.comm import TRANSPORTS
from minga.runs.experiment import Cluster, Experiment
from minga.runs.network import Link, Network
from minga.strategies import STRATEGIES
from minga.workloads import WORKLOADS

__all__ = ["commands", "fields_by_path", "names_of", "reference", "surface"]


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


def names_of(parameter: Any) -> list[str]:
    """Of an option, all that people may type; of an argument, its place."""
    if parameter.param_type_name != "option":
        return [f"<{parameter.name}>"]
    return [*parameter.opts, *parameter.secondary_opts]


def _parameters(command: Any) -> dict[str, str]:
    """What each takes, and what it is without."""
    found: dict[str, str] = {}
    for parameter in command.params:
        repeatable = bool(getattr(parameter, "multiple", False)) or parameter.nargs == -1
        facts = [
            "flag" if getattr(parameter, "is_flag", False) else "values" if repeatable else "value",
            *(["required"] if parameter.required else []),
            *([f"default {parameter.default!r}"] if isinstance(parameter.default, str | int | float) else []),
        ]
        found |= dict.fromkeys(names_of(parameter), ", ".join(facts))
    return found


def _fields(preset: Preset) -> list[str]:
    return [name for name, *_ in fields_of(preset.cls) if name not in preset.fields]


# --- for people -------------------------------------------------------------------------------------------------------

_PAGE = """# Reference

Made from the code: `.venv/bin/python tests/cli/surface.py --reference > docs/reference.md`

## Commands

`minga COMMAND --help` has options and examples.

{commands}

## Experiments

The fields of `minga.Experiment`, of `experiment.toml`, and of `--set PATH=VALUE`. Those with an option
have it in `minga train`.

{fields}

## Transports

`--transport NAME`, `cluster.transport`.

{transports}

## Strategies

`--strategy NAME:FIELD=VALUE,...`. Each also has the field `codec`: the form of vectors on the wire, see below.
One of your own: `--strategy file.py:Class` ([strategies.md](strategies.md)).

{strategies}

## Codecs

`--codec NAME:FIELD=VALUE,...`. What each is good for, and one of your own: [codecs.md](codecs.md).

{codecs}"""


def reference() -> str:
    """The page docs/reference.md."""
    listed = [
        (f"`minga {name}`", _first_line(command.help))
        for name, command in commands()
        if isinstance(COMMANDS[name], Command)
    ]
    options = {option.path: f"`--{name.replace('_', '-')}`" for name, option in EXPERIMENT_OPTIONS.items()}
    fields = [
        (f"`{path}`", _shown(default), options.get(path, ""), _line(about))
        for path, default, about in fields_by_path(Experiment)
    ]
    return _PAGE.format(
        commands=_table(("command", "what it does"), listed),
        fields=_table(("field", "default", "option", "meaning"), fields),
        transports=_table(
            ("transport", "what it is"), [(f"`{name}`", kind.about) for name, kind in TRANSPORTS.items()]
        ),
        strategies="\n".join(_entry(name, preset, without=("codec",)) for name, preset in STRATEGIES.items()),
        codecs="\n".join(_entry(name, preset) for name, preset in CODECS.items()),
    )


def fields_by_path(config: type[Config], path: str = "") -> Iterator[tuple[str, Any, str]]:
    """Each field with its dotted path, default and documentation; those of tables in their places."""
    for name, _, default, about in fields_of(config):
        inner: type[Config] | None = type(default) if isinstance(default, Config) else None
        if config is Cluster and name == "network":
            inner = Network
        if inner is None or issubclass(inner, Named) or inner is Link:
            yield f"{path}{name}", default, about
        else:
            yield from fields_by_path(inner, f"{path}{name}.")


def _entry(name: str, preset: Preset, without: tuple[str, ...] = ()) -> str:
    lines = [f"### `{name}`", "", preset.describe(), ""]
    fields = [
        (f"`{field}`", _shown(default), _line(about))
        for field, _, default, about in fields_of(preset.cls)
        if field not in preset.fields and field not in without
    ]
    return "\n".join([*lines, *([_table(("field", "default", "meaning"), fields), ""] if fields else [])])


def _shown(default: Any) -> str:
    if isinstance(default, Named):
        return f"`{describe(default)}`"
    if isinstance(default, Config):
        return "as `network`"
    if default is None or default is dataclasses.MISSING or default == () or isinstance(default, Mapping):
        return ""
    return f"`{default}`"


def _first_line(text: str) -> str:
    return _line(text.strip().partition("\n\n")[0])


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    print(reference() if "--reference" in sys.argv else json.dumps(surface(), indent=1))
