"""What comes from elsewhere is exactly what a dataclass says, or an error that says where it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from minga.errors import ProtocolError
from minga.net.strict import Count, Flag, Many, Seconds, StrictRecord, Text, decode, parse, shown


@dataclass(frozen=True, kw_only=True)
class Inner(StrictRecord):
    number: Count


@dataclass(frozen=True, kw_only=True)
class Outer(StrictRecord):
    name: Text
    flag: Flag
    seconds: Seconds
    inner: Annotated[tuple[Inner, ...], Many]
    facts: Annotated[dict[Text, Text], Many]


RIGHT: dict[str, Any] = {"name": "n", "flag": True, "seconds": 1, "inner": [{"number": 3}], "facts": {"a": "b"}}


def test_what_is_right_is_taken() -> None:
    assert parse(Outer, RIGHT, "it") == Outer(
        name="n", flag=True, seconds=1.0, inner=(Inner(number=3),), facts={"a": "b"}
    )


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"name": 3}, r"it\.name: .*string, not 3"),
        ({"name": "x" * 2001}, r"it\.name: .*at most 2000 characters"),
        ({"name": "\x1b[31m"}, r"it\.name: a text should be printable"),
        ({"flag": 1}, r"it\.flag: .*boolean, not 1"),
        ({"seconds": float("nan")}, r"it\.seconds: .*finite|it\.seconds: .*greater"),
        ({"seconds": float("inf")}, r"it\.seconds: .*finite"),
        ({"seconds": -1.0}, r"it\.seconds: .*greater than or equal to 0, not -1.0"),
        ({"seconds": "1"}, r"it\.seconds: .*number, not '1'"),
        ({"seconds": True}, r"it\.seconds: .*number, not True"),
        ({"inner": {"number": 3}}, r"it\.inner: .*tuple, not \{'number': 3\}"),
        ({"inner": [{"number": -1}]}, r"it\.inner\[0\]\.number: .*greater than or equal to 0"),
        ({"inner": [{"number": 2**53}]}, r"it\.inner\[0\]\.number: .*less than 9007199254740992"),
        ({"inner": [{"number": 10**5000}]}, r"it\.inner\[0\]\.number: .*a number of very many digits"),
        ({"inner": [{"number": 1.0}]}, r"it\.inner\[0\]\.number: .*integer, not 1.0"),
        ({"inner": [{"number": 1, "more": 2}]}, r"it\.inner\[0\]: unknown 'more'"),
        ({"inner": [{}]}, r"it\.inner\[0\]: missing 'number'"),
        ({"inner": [{"number": 1}] * 5000}, r"it\.inner: .*at most 4096"),
        ({"facts": {"a": 1}}, r"it\.facts\.a: .*string, not 1"),
        ({"facts": {str(number): "" for number in range(5000)}}, r"it\.facts: .*at most 4096"),
        ({"more": 1}, r"it: unknown 'more'"),
    ],
)
def test_anything_else_is_refused_with_its_place(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ProtocolError, match=why) as caught:
        parse(Outer, {**RIGHT, **wrong}, "it")
    assert len(str(caught.value)) < 1000


def test_only_objects_of_json() -> None:
    with pytest.raises(ProtocolError, match=r"it should be an object, not \[1\]"):
        parse(Outer, [1], "it")
    for body in (b"[1]", b"{", b'{"a":1,"a":2}', b'{"a":NaN}', b'{"a":-Infinity}', b"[" * 100_000, b"\xff"):
        with pytest.raises(ProtocolError):
            decode(body)
    assert shown("x" * 100) == "'" + "x" * 56 + "..."
