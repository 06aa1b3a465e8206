"""Objects from JSON that somebody else wrote: exactly the fields of a dataclass, of exactly their types.

    position = parse(Position, decode(b'{"step": 3, "epoch": 0, "offset": 96}'), "position")

Anything else is a `ProtocolError` that says where. Fields have the types below, whose numbers are not negative and
whose texts are short and printable, so that what comes from the network can be compared, logged and shown as it is.
"""

from __future__ import annotations

import functools
import json
from typing import Annotated, Any, ClassVar, NoReturn, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, Strict, TypeAdapter, ValidationError

from minga.errors import ProtocolError

__all__ = ["LONGEST_TEXT", "Count", "Flag", "Many", "Seconds", "StrictRecord", "Text", "decode", "parse", "shown"]

LONGEST_TEXT = 2000

T = TypeVar("T")


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("a text should be printable")
    return text


Text = Annotated[str, Strict(), Field(max_length=LONGEST_TEXT), AfterValidator(_printable)]
# JSON's numbers are exact up to here, in every language.
Count = Annotated[int, Strict(), Field(ge=0, lt=2**53)]
Seconds = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]
Flag = Annotated[bool, Strict()]
Many = Field(max_length=4096)
"""For lists and tables of things."""


class StrictRecord:
    """Base of dataclasses that come from elsewhere: a field that they don't have is an error."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


def decode(body: bytes) -> dict[str, Any]:
    """A JSON object; `ProtocolError` for anything else, also for repeated keys and for numbers that JSON has not."""
    try:
        table = json.loads(body.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_no_repeats)
    except (ValueError, RecursionError) as error:  # both UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise ProtocolError(f"a message that is no JSON: {shown(body)} ({shown(str(error))})") from None
    if type(table) is not dict:
        raise ProtocolError(f"a message should be a JSON object, not {shown(table)}")
    return table


def parse(cls: type[T], table: object, where: str) -> T:
    """An object of a dataclass (a `StrictRecord`) from a JSON object; `where` is what errors call it."""
    if type(table) is not dict:
        raise ProtocolError(f"{where} should be an object, not {shown(table)}")
    try:
        parsed: T = _adapter(cls).validate_python(table)  # type: ignore[arg-type]
        return parsed
    except ValidationError as error:
        raise ProtocolError("; ".join(_explain(each, where) for each in error.errors(include_url=False)[:3])) from None


def shown(value: object) -> str:
    """A stranger's value as a short text for a log."""
    text = "a number of very many digits" if isinstance(value, int) and value.bit_length() > 1000 else ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@functools.cache
def _adapter(cls: Any) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def _explain(error: Any, where: str) -> str:
    """One of pydantic's errors; of what the other side wrote it shows a few characters."""
    *path, last = error["loc"] or ("",)
    if error["type"] == "missing":
        return f"{_place(where, path)}: missing {last!r}"
    if error["type"] == "unexpected_keyword_argument":
        return f"{_place(where, path)}: unknown {shown(last)}"
    if error["type"] == "value_error":
        return f"{_place(where, error['loc'])}: {error['ctx']['error']}"
    reason = error["msg"][0].lower() + error["msg"][1:]
    return f"{_place(where, error['loc'])}: {reason}, not {shown(error['input'])}"


def _place(where: str, path: Any) -> str:
    return where + "".join(
        f".{part}" if isinstance(part, str) and part.isidentifier() and len(part) < 30 else f"[{shown(part)}]"
        for part in path
    )


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a key is there twice")
    return table
