"""What ranks go on from around servers, from words alone."""

from __future__ import annotations

import pytest

from minga.errors import ProtocolError, RunError
from minga.net.strict import parse
from minga.strategies.parameter_server.agreement import RankState, agree
from minga.strategies.parameter_server.update_log import Entry, Period

ORDER = {"epoch": 0, "offset": 0, "samples": 100, "owed": []}


def period(number: int = 1, step: int = 0, workers: tuple[str, ...] = ("a", "b")) -> Period:
    return Period(number, step, ORDER, workers)


def worker(name: str, applied: int, acknowledged: int | None = None) -> RankState:
    known = applied if acknowledged is None else acknowledged
    return RankState(name=name, survivor=True, period=period(), applied=applied, acknowledged=known)


def server(name: str, **book: list[Entry]) -> RankState:
    return RankState(name=name, server=True, truth=True, period=period(), book=book)


def pushes(last: int, of_period: int = 1) -> list[Entry]:
    return [Entry(number, of_period, number) for number in range(max(1, last - 7), last + 1)]


def test_servers_that_are_at_one_point_undo_nothing() -> None:
    words = [
        worker("a", 4),
        worker("b", 3),
        server("s", a=pushes(5), b=pushes(4)),
        server("t", a=pushes(5), b=pushes(4)),
    ]
    agreement = agree(words, lockstep=False)
    assert agreement.undone == {2: set(), 3: set()}
    assert agreement.merged_steps == [5, 4]  # also what no worker has heard of yet: it was applied once, and stays
    assert agreement.lost == []


def test_what_one_server_lacks_is_undone_on_the_others() -> None:
    words = [worker("a", 4), server("s", a=pushes(5), b=pushes(4)), server("t", a=pushes(4), b=pushes(5))]
    agreement = agree(words, lockstep=True)
    assert agreement.undone == {1: {("a", 5)}, 2: {("b", 5)}}
    assert agreement.merged_steps == [4, 4]


def test_a_worker_that_one_server_has_never_heard_of() -> None:
    words = [worker("a", 4), server("s", a=pushes(4), c=pushes(1)), server("t", a=pushes(4))]
    agreement = agree(words, lockstep=False)
    assert agreement.undone == {1: {("c", 1)}, 2: set()}


def test_a_server_that_has_not_begun_the_last_period_brings_all_to_its_beginning() -> None:
    # "s" has undone push 5 of "a" as agreed, begun period 2 and got push 6; "t" was cut off before it did any of that.
    ahead = RankState(
        name="s",
        server=True,
        truth=True,
        period=period(2, 4, ("a",)),
        book={"a": [*pushes(4), Entry(6, 2, 5)], "b": pushes(4)},
    )
    behind = server("t", a=pushes(5), b=pushes(4))
    agreement = agree([worker("a", 4), ahead, behind], lockstep=True)
    assert agreement.period.number == 2
    assert agreement.undone == {1: {("a", 6)}, 2: {("a", 5)}}
    assert agreement.merged_steps == [4]


def test_a_server_that_has_lost_what_workers_know_of_is_not_believed() -> None:
    words = [
        worker("a", 5),
        worker("b", 5),
        server("s", a=pushes(5), b=pushes(6)),
        server("t", a=pushes(2), b=pushes(2)),
    ]
    agreement = agree(words, lockstep=True)
    assert agreement.lost == [3]
    assert agreement.source == 0
    # Its new parameters are a worker's: the other server must not be ahead of these.
    assert agreement.undone == {2: {("b", 6)}}
    assert agreement.merged_steps == [5, 5]


def test_when_all_servers_are_lost_the_furthest_worker_is_the_source() -> None:
    words = [worker("b", 6), worker("a", 7), RankState(name="s", server=True)]
    agreement = agree(words, lockstep=False)
    assert (agreement.lost, agreement.source) == ([2], 1)
    assert agreement.merged_steps == [7, 6]  # in the order of the period's workers
    assert agreement.common == {"a": [(7, 1, 7)], "b": [(6, 1, 6)]}


def test_in_step_the_answer_to_one_worker_has_the_push_of_another_that_was_not_answered() -> None:
    """The server was lost between its two answers: what "b" has pushed last is in the parameters of "a"."""
    words = [worker("b", 6, acknowledged=8), worker("a", 7), RankState(name="s", server=True)]
    agreement = agree(words, lockstep=True)
    assert (agreement.lost, agreement.source) == ([2], 1)
    assert agreement.merged_steps == [7, 7]
    assert agreement.common == {"a": [(7, 1, 7)], "b": [(9, 1, 7)]}
    words = [worker("a", 5), worker("b", 4), server("s", a=pushes(5), b=pushes(5)), RankState(name="t", server=True)]
    agreement = agree(words, lockstep=True)
    assert agreement.lost == [3]
    assert agreement.undone == {2: set()}
    assert agreement.merged_steps == [5, 5]


def test_when_nobody_has_anything_the_remedy_is_told() -> None:
    with pytest.raises(RunError, match="--resume"):
        agree([RankState(name="a 1"), RankState(name="node-4 77", server=True)], lockstep=True)


def test_newcomers_neither_add_nor_take() -> None:
    words = [worker("a", 4), RankState(name="new"), server("s", a=pushes(4), b=pushes(4))]
    agreement = agree(words, lockstep=True)
    assert agreement.merged_steps == [4, 4]
    assert agreement.undone == {2: set()}


def test_nonsense_is_refused() -> None:
    with pytest.raises(ProtocolError):
        parse(RankState, {"name": "a", "more": 1}, "its state")
