"""A generation as others send it: only the right form is taken."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from minga.errors import ProtocolError
from minga.net.generation import Generation, MemberInfo
from minga.net.strict import parse

MEMBERS = tuple(
    MemberInfo(id=f"node-{rank}", incarnation="abababab", address="127.0.0.1", port=4000 + rank, role=role)
    for rank, role in enumerate(("worker", "server"))  # type: ignore[arg-type]
)
GENERATION = Generation(number=3, members=MEMBERS, secret="0f" * 32)


def test_it_is_the_same_after_a_journey() -> None:
    assert parse(Generation, json.loads(json.dumps(asdict(GENERATION))), "generation") == GENERATION
    assert GENERATION.rank_of("node-1") == 1
    with pytest.raises(KeyError, match=r"node-9.* is not in generation 3: node-0, node-1"):
        GENERATION.rank_of("node-9")


@pytest.mark.parametrize(
    "changes",
    [
        {"number": -1},
        {"number": "3"},
        {"number": True},
        {"members": {}},
        {"members": [5]},
        {"secret": "ab"},
        {"secret": "zz" * 32},
        {"secret": 5},
        {"more": 1},
        {"members": [asdict(MEMBERS[0]), asdict(MEMBERS[0])]},
        *({"members": [{**asdict(MEMBERS[0]), **wrong}]} for wrong in ({"port": 0}, {"port": 1 << 16}, {"port": "1"})),
        *({"members": [{**asdict(MEMBERS[0]), **wrong}]} for wrong in ({"role": "king"}, {"id": 5}, {"age": 7})),
    ],
)
def test_anything_else_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        parse(Generation, {**asdict(GENERATION), **changes}, "generation")


@pytest.mark.parametrize("missing", ["number", "members", "secret"])
def test_nothing_may_be_missing(missing: str) -> None:
    content = asdict(GENERATION)
    del content[missing]
    with pytest.raises(ProtocolError, match=missing):
        parse(Generation, content, "generation")
    with pytest.raises(ProtocolError, match="object"):
        parse(Generation, [content], "generation")
