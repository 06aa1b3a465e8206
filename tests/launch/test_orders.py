"""Orders travel as JSON, and are checked where they arrive."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from minga.base.config import FieldError, build
from minga.launch.orders import Meeting, MemberOrder, RankOrder
from minga.launch.processes import Job
from minga.membership.coordinator import CoordinatorOrder
from minga.membership.rules import Rules

ENTRY = MemberOrder(run="r", token="0" * 64, hosts=("localhost", "localhost"), coordinator=("127.0.0.1", 4000))
ORDERS = [
    RankOrder(run=Path("runs/r"), ranks=(0, 2), address="127.0.0.1", roster=ENTRY, resume="step-20", session=2),
    RankOrder(run=Path("r"), ranks=(1,), address="a", meeting=Meeting(address="b", port=4000, hosts=("east", "west"))),
    CoordinatorOrder(state=Path("coordinator.json"), run="r", rules=Rules(expect=4, min_nodes=2), own=(0, 1)),
]


@pytest.mark.parametrize("order", ORDERS)
def test_what_arrives_is_what_was_sent(order: Any) -> None:
    job = Job("rank 0", "minga.launch.rank:main", order, "log")
    arrived = Job(**json.loads(json.dumps(asdict(job), default=str)))
    assert isinstance(arrived.order, dict)
    assert build(type(order), arrived.order) == order


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"again": True}, "unknown key 'again'"),
        ({"ranks": []}, "needs at least one rank"),
        ({"ranks": ["x"]}, "ranks: .*valid integer"),
        ({"roster": None}, "by a meeting or by a roster"),
        ({"ranks": [0]}, r"roster\.hosts: 2 hosts for 1 ranks"),
        ({"roster": {"run": "r", "token": "t", "hosts": ["h"], "start": "late"}}, r"roster\.start: .*'first'"),
    ],
)
def test_what_is_no_order_is_refused_by_the_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        build(RankOrder, {**json.loads(json.dumps(asdict(ORDERS[0]), default=str)), **change})


def test_the_token_is_not_shown() -> None:
    assert "0" * 64 not in repr(ORDERS[0])


def test_who_is_started_again_knows_it() -> None:
    assert ORDERS[0].again().roster.start == "again"  # type: ignore[union-attr]
