"""What is read from the network: exactly what it should be, or a `ProtocolError`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from people import info

from minga.errors import ProtocolError
from minga.membership.messages import Announcement, Hello, from_dict, to_dict
from minga.membership.protocol import encode
from minga.net.generation import Generation, MemberInfo, new_secret
from minga.net.strict import decode, parse

GENERATION = Generation(number=3, members=(info("a"), info("b", role="server")), secret=new_secret())


def test_generations_survive_the_wire() -> None:
    assert parse(Generation, json.loads(json.dumps(asdict(GENERATION))), "generation") == GENERATION
    assert GENERATION.rank_of("b") == 1
    with pytest.raises(KeyError, match="'c' is not in generation 3"):
        GENERATION.rank_of("c")


def changed(**fields: Any) -> dict[str, Any]:
    return {**asdict(GENERATION), **fields}


@pytest.mark.parametrize(
    "table",
    [
        None,
        [],
        {},
        changed(extra=1),
        changed(number="3"),
        changed(number=True),
        changed(number=3.0),
        changed(number=0),
        changed(number=-1),
        changed(number=2**60),
        changed(members=[]),
        changed(members={"a": 1}),
        changed(members=[asdict(info("a")), asdict(info("a"))]),
        changed(members=[asdict(info("s", role="server")), asdict(info("w"))]),
        changed(secret="abc"),
        changed(secret="X" * 64),
    ],
)
def test_what_is_no_generation(table: Any) -> None:
    with pytest.raises(ProtocolError):
        parse(Generation, table, "generation")


@pytest.mark.parametrize(
    "fields",
    [
        {"id": ""},
        {"id": "a b"},
        {"id": "a\nb"},
        {"id": "x" * 65},
        {"incarnation": "zombie!"},
        {"address": "10.0.0.1 or so"},
        {"port": 0},
        {"port": 65536},
        {"host": "a\x1b[31m"},
        {"host": "x" * 3000},
        {"role": "boss"},
        {"role": None},
    ],
)
def test_what_is_no_member(fields: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        parse(MemberInfo, {**asdict(info("a")), **fields}, "member")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[1]",
        b"{",
        b'{"a":1,"a":2}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b"[" * 100_000,
        b'{"a":' + b"9" * 5000 + b"}",
        b"GET / HTTP/1.1\r\n",
    ],
)
def test_what_is_no_message(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(body)


def test_messages_survive_the_wire_and_strangers_do_not() -> None:
    for message in (
        Hello(info=info("a"), facts={"version": "1"}),
        Announcement(generation=GENERATION, position=Hello(info=info("a")).position, survivors=("a",), reason="why"),
    ):
        assert from_dict(decode(encode(message)[4:])) == message
    with pytest.raises(ProtocolError, match="unknown kind of message 'nonsense'; known: hello, inquiry"):
        from_dict({"kind": "nonsense"})
    with pytest.raises(ProtocolError, match="missing 'finished'"):
        from_dict({"kind": "leave"})
    with pytest.raises(ProtocolError, match=r"hello\.facts\.a: input should be a valid string, not 1"):
        from_dict({**to_dict(Hello(info=info("a"))), "facts": {"a": 1}})
