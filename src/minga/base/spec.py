"""Families of classes that have names: strategies, codecs. People type them as short strings.

parse(Strategy, "ps:mode=async,servers=2")      # or "my_file.py:MyStrategy:period=8"
describe(strategy)                              # and back again
"""

from __future__ import annotations

import dataclasses
import inspect
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from minga.base.config import Config, FieldError, build, default_of
from minga.base.user_files import load_from_file
from minga.errors import ConfigError, unknown

__all__ = ["Named", "Preset", "describe", "parse", "register"]


class Named(Config):
    """A configuration that belongs to a family; a field of its type takes an object, a table or a string."""

    @classmethod
    def from_value(cls, value: Any) -> Self:
        if isinstance(value, str):
            return parse(cls, value)
        if isinstance(value, Mapping):
            return _from_table(cls, value)
        if isinstance(value, cls):
            return value
        raise ConfigError(f"{value!r} is no {cls.kind}; give its name, a table with a name, or file.py:Class")


@dataclass(frozen=True)
class Preset:
    """A name's meaning: a class, and the fields that the name fixes."""

    home: type[Named] | str
    """The class, or where it is: `package.module:Class`, for one that is imported when somebody asks for it."""
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    summary: str = ""
    """One line for people; default: the first line of the class's docstring."""

    @property
    def cls(self) -> type[Named]:
        if not isinstance(self.home, str):
            return self.home
        found: type[Named] = pkgutil.resolve_name(self.home)
        return found

    def means(self, cls: type[Named]) -> bool:
        return self.home in (cls, f"{cls.__module__}:{cls.__qualname__}")

    def describe(self) -> str:
        return self.summary or (inspect.getdoc(self.cls) or "").split("\n", 1)[0]


_FAMILIES: dict[type[Named], Mapping[str, Preset]] = {}

AnyNamed = TypeVar("AnyNamed", bound=Named)


def register(family: type[Named], presets: Mapping[str, Preset]) -> None:
    """Make the names of a family known to `parse` and `describe`."""
    _FAMILIES[family] = presets


def parse(family: type[AnyNamed], text: str) -> AnyNamed:
    """An object from `name[:field=value,...]` or `file.py:Class[:field=value,...]`."""
    name, _, rest = text.partition(":")
    if name.endswith(".py"):
        attribute, _, rest = rest.partition(":")
        name = f"{name}:{attribute}"
    if rest.count("(") != rest.count(")"):
        raise ConfigError(f"{family.kind} {text!r} has a parenthesis without its partner")
    values: dict[str, Any] = {}
    for item in _split(rest):
        key, equals, value = item.partition("=")
        if not equals:
            raise ConfigError(f"{item!r} in {family.kind} {text!r} should be field=value")
        if key.strip() in values:
            raise ConfigError(f"{family.kind} {text!r} says {key.strip()} twice")
        values[key.strip()] = _without_parentheses(value.strip())
    return _make(family, name, values)


def _from_table(family: type[AnyNamed], table: Mapping[str, Any]) -> AnyNamed:
    if not isinstance(table.get("name"), str):
        example = next(iter(_FAMILIES[family]))
        raise ConfigError(f"a table for a {family.kind} needs a name, such as name = {example!r}")
    return _make(family, table["name"], {key: value for key, value in table.items() if key != "name"})


def _make(family: type[AnyNamed], name: str, values: Mapping[str, Any]) -> AnyNamed:
    if ".py:" in name:
        cls = load_from_file(name)
        if not (isinstance(cls, type) and issubclass(cls, family)):
            raise ConfigError(f"{name} is no {family.kind}: make it a subclass of minga.{family.__name__}")
        if inspect.isabstract(cls):
            missing = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
            raise ConfigError(f"{name} is no complete {family.kind}: it lacks {missing}")
        if "__dataclass_fields__" not in vars(cls):
            raise ConfigError(f"{name} should be decorated with @dataclass(frozen=True, kw_only=True)")
        return build(cls, values)
    presets = _FAMILIES[family]
    if name not in presets:
        if "," in name or "=" in name:
            raise ConfigError(f"{name!r} is no name of a {family.kind}; fields follow a colon: name:field=value,...")
        raise unknown(family.kind, name, presets, f"A {family.kind} of your own: file.py:Class.")
    preset = presets[name]
    for key, value in preset.fields.items():
        if key in values:
            raise FieldError((key,), f"{name!r} means {key}={value} already; leave it out")
    made = build(preset.cls, {**preset.fields, **values})
    assert isinstance(made, family)
    return made


def _split(text: str) -> list[str]:
    """Cut at commas that are not inside parentheses."""
    parts, depth, current = [], 0, ""
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += letter
    return [part for part in [*parts, current] if part.strip()]


def _without_parentheses(text: str) -> str:
    """Without those around it all; `gossip:codec=(...)` keeps its own."""
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def describe(value: Named) -> str:
    """A short string that `parse` turns into an equal object."""
    family = next(family for family in _FAMILIES if isinstance(value, family))
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(value)  # type: ignore[arg-type]
    own = {field.name: getattr(value, field.name) for field in fields}
    matching = [
        (name, preset)
        for name, preset in _FAMILIES[family].items()
        if preset.means(type(value)) and all(own[key] == fixed for key, fixed in preset.fields.items())
    ]
    if matching:
        name, preset = max(matching, key=lambda pair: len(pair[1].fields))
        fixed: Mapping[str, Any] = preset.fields
    else:
        source = Path(inspect.getfile(type(value))).resolve()
        name, fixed = f"{source}:{type(value).__name__}", {}
    shown = []
    for field in fields:
        mine = own[field.name]
        usual = mine == default_of(field) and not field.metadata.get("always_shown")
        if field.name not in fixed and not usual:
            text = describe(mine) if isinstance(mine, Named) else _plain(mine)
            shown.append(f"{field.name}=({text})" if "," in text else f"{field.name}={text}")
    return f"{name}:{','.join(shown)}" if shown else name
