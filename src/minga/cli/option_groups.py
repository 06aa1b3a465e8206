"""Options that belong together, as one parameter of a command.

@dataclass(frozen=True, kw_only=True)
class Place:
    x: Annotated[int | None, typer.Option(help="To the right.")] = None
    y: Annotated[int | None, typer.Option(help="Up.")] = None

def draw(place: Annotated[Place, options_of(Place, panel="Place")], as_json: JsonOption = False) -> None: ...

typer.Typer().command()(expanded(draw))     # draw --x 3 --y 4 --json
"""

from __future__ import annotations

import copy
import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["OptionGroup", "expanded", "optional", "options_of"]


@dataclass(frozen=True)
class OptionGroup:
    """Stands in the annotation of a command's parameter."""

    parameters: Callable[[], Sequence[inspect.Parameter]]
    """The options, by keyword; made when the command is: not every command that is listed is called."""
    make: Callable[[Mapping[str, Any]], Any]
    """What the command gets, from the options' values."""


def optional(name: str, kind: Any, option: Any) -> inspect.Parameter:
    """An option that may be left out; then it is None."""
    annotation = typing.Annotated.__class_getitem__((kind | None, option))  # type: ignore[attr-defined]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def options_of(cls: Callable[..., Any], *, panel: str) -> OptionGroup:
    """One option for each field of a dataclass, all of which may be left out; `panel`: their heading in help."""

    def parameters() -> list[inspect.Parameter]:
        found = []
        for name, annotation in typing.get_type_hints(cls, include_extras=True).items():
            option = copy.copy(annotation.__metadata__[0])
            option.rich_help_panel = panel
            found.append(optional(name, annotation.__origin__, option))
        return found

    return OptionGroup(parameters, lambda given: cls(**given))


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of its groups in the place of these; its signature says so to typer."""
    parameters: list[inspect.Parameter] = []
    members: dict[str, tuple[OptionGroup, list[str]]] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        metadata = getattr(parameter.annotation, "__metadata__", ())
        group = next((each for each in metadata if isinstance(each, OptionGroup)), None)
        if group is None:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        inside = group.parameters()
        parameters += inside
        members[parameter.name] = (group, [each.name for each in inside])

    @functools.wraps(command)
    def called(**values: Any) -> None:
        for name, (group, names) in members.items():
            values[name] = group.make({each: values.pop(each) for each in names})
        command(**values)

    described: Any = called
    described.__signature__ = inspect.Signature(parameters)
    described.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called
