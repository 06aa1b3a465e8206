"""Configuration objects: dataclasses whose fields are checked when they are made.

    @dataclass(frozen=True, kw_only=True)
    class Cluster(Config):
        nodes: int = 1

Fields are checked and converted by their types (pydantic does that), whether they come from Python, from TOML
or from the command line. `Annotated[int, limits(1)]` says what a number may be; `check()` is for what several fields
say together. The string under a field is its documentation, for people who read the source and for those who ask
the command line.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import math
import textwrap
import typing
from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypeVar

from pydantic import AfterValidator, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import core_schema

from minga.errors import ConfigError, unknown

__all__ = ["AnyConfig", "Config", "FieldError", "build", "default_of", "documentation_of", "fields_of", "limits"]


class FieldError(ConfigError):
    """A field has a value that it can't have. `path` is where, from the outermost object inwards."""

    def __init__(self, path: tuple[str, ...], message: str) -> None:
        super().__init__(f"{'.'.join(path)}: {message}" if path else message)
        self.path = path
        self.message = message

    def inside(self, outer: str) -> FieldError:
        return FieldError((outer, *self.path), self.message)


class Config:
    """Base of every configuration dataclass: fields are checked when it is made."""

    kind: ClassVar[str] = "configuration"
    """What an error message calls such an object."""

    def __post_init__(self) -> None:
        cls: Any = type(self)
        for name, adapter in _adapters(cls).items():
            value = getattr(self, name)
            try:
                converted = adapter.validate_python(_untyped(cls, name, value))
            except ValidationError as error:
                raise _explain(error, value).inside(name) from None
            object.__setattr__(self, name, converted)
        self.check()

    def check(self) -> None:
        """Raise `FieldError` for combinations that can't work."""

    @classmethod
    def from_value(cls, value: Any) -> Self:
        """Take an object as it is, or build it from a table."""
        if isinstance(value, cls):
            return value
        if isinstance(value, Mapping):
            return build(cls, value)
        raise ConfigError(f"{value!r} is no {cls.kind}; give a table of its fields")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(cls.from_value)


@functools.cache
def _adapters(cls: Any) -> dict[str, TypeAdapter[Any]]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: TypeAdapter(hints[field.name]) for field in _fields(cls)}


def _untyped(cls: Any, name: str, value: Any) -> Any:
    """What the string of a command line means where the field is no string: `None`, `1,2,3`."""
    if not isinstance(value, str):
        return value
    hint = typing.get_type_hints(cls)[name]
    if value == "None" and type(None) in typing.get_args(hint):
        return None
    if typing.get_origin(hint) in (tuple, list):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _fields(cls: type[Config]) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(cls)  # type: ignore[arg-type]  # every Config is a dataclass


def _explain(error: ValidationError, value: Any) -> FieldError:
    """Pydantic's reason in one line; a literal's choices are in it already."""
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, FieldError):
        place = tuple(str(part) for part in first["loc"] if isinstance(part, int))  # in a list: which one
        return FieldError((*place, *cause.path), cause.message)
    if isinstance(cause, ConfigError):
        return FieldError((), str(cause))
    reason = first["msg"][0].lower() + first["msg"][1:]
    return FieldError((), f"{reason}, not {value!r}")


AnyConfig = TypeVar("AnyConfig", bound=Config)


def build(cls: type[AnyConfig], values: Mapping[str, Any]) -> AnyConfig:
    """An object from a table; a key that is no field is an error with a suggestion."""
    fields = _fields(cls)
    for key in values:
        if key not in {field.name for field in fields}:
            raise FieldError((key,), str(unknown("key", key, [field.name for field in fields])))
    for field in fields:
        if field.name not in values and default_of(field) is dataclasses.MISSING:
            raise FieldError((field.name,), f"{cls.kind} needs a value for {field.name!r}")
    return cls(**values)


def limits(least: float, most: float = math.inf) -> AfterValidator:
    """What a number may be, in the type of its field. Infinity is never meant, and neither is NaN."""
    should = f"at least {least}" if most == math.inf else f"{least} to {most}"

    def check(value: float) -> float:
        if not least <= value <= most or value == math.inf:
            raise ConfigError(f"should be {should}, not {f'{value:g}' if isinstance(value, float) else value}")
        return value

    return AfterValidator(check)


def default_of(field: dataclasses.Field[Any]) -> Any:
    """A field's default value, `dataclasses.MISSING` where it has none."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def fields_of(cls: type[Config]) -> list[tuple[str, str, Any, str]]:
    """Name, type, default and one-line description of each field, for listings."""
    documented = documentation_of(cls)  # type: ignore[arg-type]  # classes can be hashed, whatever their instances do
    hints = typing.get_type_hints(cls)
    listed = []
    for field in _fields(cls):
        hint = hints[field.name]
        choices = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
        kind = "|".join(map(str, choices)) or getattr(hint, "__name__", str(hint))
        listed.append((field.name, kind, default_of(field), documented.get(field.name, "")))
    return listed


@functools.cache
def documentation_of(cls: Any) -> Mapping[str, str]:
    """The string under each field of a configuration, read from the source: the one place where it is written."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if "__dataclass_fields__" not in vars(base):
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(tree, ast.ClassDef)
        for statement, following in zip(tree.body, tree.body[1:], strict=False):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and isinstance(following, ast.Expr)
                and isinstance(following.value, ast.Constant)
                and isinstance(following.value.value, str)
            ):
                found[statement.target.id] = inspect.cleandoc(following.value.value)
    return found
