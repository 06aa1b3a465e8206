"""Objects from JSON that somebody else wrote: exactly the fields of a dataclass, of exactly their types.

    position = build(Position, {"step": 3, "epoch": 0, "offset": 96}, "position")

Anything else is a `ProtocolError` that says where. Numbers are not negative and texts are short and printable, so that
what comes from the network can be compared, logged and shown without a second look.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from typing import Any, Literal, TypeVar, get_args, get_origin

from minga.errors import ProtocolError

__all__ = ["LONGEST_TEXT", "build", "shown"]

LONGEST_TEXT = 2000
_LARGEST_NUMBER = 2**53  # JSON's numbers are exact up to here, in every language
_MOST_ENTRIES = 4096

T = TypeVar("T")


def build(cls: type[T], table: object, where: str) -> T:
    """A dataclass object from a JSON object; `where` is what errors call it."""
    hints = _hints(cls)  # type: ignore[arg-type]
    if type(table) is not dict:
        raise ProtocolError(f"{where} should be an object, not {shown(table)}")
    unknown, missing = [key for key in table if key not in hints], [key for key in hints if key not in table]
    if unknown or missing:
        words = [f"unknown {shown(key)}" for key in unknown[:3]] + [f"missing {key!r}" for key in missing[:3]]
        raise ProtocolError(f"{where} has other fields than it should: {', '.join(words)}")
    return cls(**{key: _convert(hint, table[key], f"{where}.{key}") for key, hint in hints.items()})


def shown(value: object) -> str:
    """A stranger's value as a short word for a log."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _convert(hint: Any, value: object, where: str) -> Any:
    origin = get_origin(hint)
    if origin is Literal:
        if type(value) is str and value in get_args(hint):
            return value
        raise ProtocolError(f"{where} should be one of {', '.join(get_args(hint))}, not {shown(value)}")
    if origin is types.UnionType:  # only `X | None` is used
        return None if value is None else _convert(get_args(hint)[0], value, where)
    if origin is tuple:
        if type(value) is not list or len(value) > _MOST_ENTRIES:
            raise ProtocolError(f"{where} should be a list of at most {_MOST_ENTRIES} entries, not {shown(value)}")
        return tuple(_convert(get_args(hint)[0], entry, f"{where}[{place}]") for place, entry in enumerate(value))
    if origin is dict:
        if type(value) is not dict or len(value) > _MOST_ENTRIES:
            raise ProtocolError(f"{where} should be an object of at most {_MOST_ENTRIES} entries, not {shown(value)}")
        kind = get_args(hint)[1]
        return {_text(key, where): _convert(kind, entry, f"{where}[{shown(key)}]") for key, entry in value.items()}
    if hint is str:
        return _text(value, where)
    if hint is bool and type(value) is bool:
        return value
    if hint is int and type(value) is int and 0 <= value < _LARGEST_NUMBER:
        return value
    if hint is float and type(value) in (int, float) and 0 <= value < math.inf:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    if dataclasses.is_dataclass(hint):
        # A type that knows more about its fields than their types says so in a `from_dict` of its own.
        return hint.from_dict(value) if hasattr(hint, "from_dict") else build(hint, value, where)  # type: ignore[arg-type]
    raise ProtocolError(f"{where} should be {_NAMES.get(hint, 'something else')}, not {shown(value)}")


_NAMES = {bool: "true or false", int: "a whole number from 0", float: "a number from 0"}


def _text(value: object, where: str) -> str:
    if type(value) is str and len(value) <= LONGEST_TEXT and value.isprintable():
        return value
    raise ProtocolError(f"{where} should be a printable text of at most {LONGEST_TEXT} characters, not {shown(value)}")
