"""When steps that are given up again and again are a strategy's mistake."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minga.comm.threads import run_threads
from minga.comm.transport import Transport
from minga.errors import PeerLost, PeerTimeout, PeerWrong, StrategyError, WrongLength
from minga.strategies.parameter_server.recovery import share_texts
from minga.training.given_up import GivenUp, Review

BOTH = ["node-0", "node-1"]


def given_up(
    comm: Transport, *, fruitless: bool = True, short: bool = True, waited: bool = True, ended: bool = False
) -> GivenUp:
    lost = (
        PeerTimeout("in vain", rank=1 - comm.rank) if waited else PeerLost("its connection ended", rank=1 - comm.rank)
    )
    lost.waiting = f"to receive 10 float32 from rank {1 - comm.rank}"
    return GivenUp.of(lost, rank=comm.rank, step=7, fruitless=fruitless, short=short, ended=ended, accused=False)


def after(*accounts: Callable[[Transport], GivenUp | None], members: list[str] = BOTH) -> None:
    """Two ranks give up as often, each time as the account says, and review it together."""

    def body(comm: Transport) -> None:
        review = Review()
        for account in accounts:
            if (made := account(comm)) is not None:
                review.gave_up(made, BOTH)
            review.look(comm, members)

    run_threads(2, body)


def test_once_may_be_the_network() -> None:
    after(given_up)


def test_twice_without_any_exchange_is_the_program() -> None:
    with pytest.raises(
        StrategyError, match=r"step 7 was given up, twice in a row, and all 2 .*rank 0 waited to receive"
    ):
        after(given_up, given_up)


def test_what_fails_between_them_changes_nothing() -> None:
    """A generation that comes to an end before anybody has trained in it."""
    with pytest.raises(StrategyError, match="twice in a row"):
        after(given_up, lambda comm: None, given_up)


def test_who_makes_some_exchanges_may_give_up_once_more() -> None:
    def some(comm: Transport) -> GivenUp:
        return given_up(comm, fruitless=comm.rank == 0)

    after(some, some)
    with pytest.raises(StrategyError, match="3 times in a row"):
        after(some, some, some)


def test_long_training_between_two_waits_or_a_lost_connection_is_none() -> None:
    def long(comm: Transport) -> GivenUp:
        return given_up(comm, fruitless=False, short=comm.rank == 0)

    def broken(comm: Transport) -> GivenUp:
        return given_up(comm, waited=False)

    after(*[long] * 5)
    after(*[broken] * 5)
    after(given_up, broken, given_up, broken)


def test_who_waits_at_the_end_for_one_in_the_middle_is_told_at_once() -> None:
    """The next time both would be at the end, and nothing would be wrong any more."""
    with pytest.raises(StrategyError, match=r"step 7 was given up, and all 2 ranks were there, waiting for each other"):
        after(lambda comm: given_up(comm, fruitless=False, short=False, ended=comm.rank == 0))
    after(lambda comm: given_up(comm, ended=True))


def test_with_other_members_it_is_none() -> None:
    after(given_up, given_up, given_up, members=["node-0", "node-2"])


def test_a_message_of_another_length_ends_the_run_at_once_on_all_ranks() -> None:
    def body(comm: Transport) -> str:
        review = Review()
        lost: PeerLost = PeerLost("the connection to rank 0 is gone", rank=0)
        if comm.rank == 0:
            lost = WrongLength("rank 0: rank 1 sent 20 bytes where 40 were expected", rank=1)
        account = GivenUp.of(lost, rank=comm.rank, step=3, fruitless=False, short=False, ended=False, accused=False)
        review.gave_up(account, BOTH)
        with pytest.raises(StrategyError) as caught:
            review.look(comm, BOTH)
        return str(caught.value)

    first, second = run_threads(2, body)
    assert first == second
    assert first.startswith("rank 0: rank 1 sent 20 bytes where 40 were expected: rank 0 waited for another message")


def test_a_malformed_account_is_the_other_rank_s_fault() -> None:
    def body(comm: Transport) -> None:
        if comm.rank == 1:
            share_texts(comm, '{"rank": -7}')
            return
        with pytest.raises(PeerWrong, match="rank 1 sent a malformed account") as caught:
            Review().look(comm, BOTH)
        assert caught.value.rank == 1

    run_threads(2, body)
