"""Reading ahead changes when samples are read, never which: also when ranks come and go and when reading fails."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest
import torch

from minga.data.order import Order, Share, Stretch
from minga.data.read_ahead import ReadAhead, in_advance


class Rank:
    """One rank that trains, with its order and what it read."""

    def __init__(self, samples: int, *, batches: int = 3) -> None:
        self.order = Order(samples, seed=1)
        self.rank, self.workers, self.batch = 0, 1, 4
        self.reads: list[tuple[str, list[int]]] = []
        self.ahead = ReadAhead(self.read, batches=batches)

    def read(self, share: Share) -> list[int]:
        indices: list[int] = share.indices.tolist()
        self.reads.append((threading.current_thread().name, indices))
        return indices

    def coming(self, order: Order) -> Share:
        return order.take(self.rank, self.workers, self.batch)

    def step(self) -> tuple[list[int], list[int]]:
        """What was to be read, and what was."""
        share = self.order.take(self.rank, self.workers, self.batch)
        if not len(share.indices):
            return [], []
        return share.indices.tolist(), self.ahead.take(share, self.order, self.coming)


def test_batches_are_those_of_the_order_and_come_from_threads() -> None:
    rank = Rank(50)
    for _ in range(60):  # several epochs
        wanted, got = rank.step()
        assert wanted == got
    assert (rank.ahead.misses, rank.ahead.hits) == (1, 59)
    assert {name for name, _ in rank.reads[3:]} <= {"minga-reader", "MainThread"}
    assert sum(name == "minga-reader" for name, _ in rank.reads) >= 59


def test_the_order_does_not_know_of_it() -> None:
    ahead, alone = Rank(50), Order(50, seed=1)
    for _ in range(30):
        ahead.step()
        alone.take(0, 1, 4)
        assert ahead.order.position() == alone.position()


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_the_right_samples_come(seed: int) -> None:
    """Other numbers of workers, other ranks, samples that are owed, positions that are gone back to."""
    chance = random.Random(seed)
    rank = Rank(chance.randint(5, 60), batches=chance.randint(1, 5))
    positions = [rank.order.position()]
    for _ in range(60):
        event = chance.randrange(8)
        if event == 0:
            rank.workers = chance.randint(1, 4)
            rank.rank = chance.randrange(rank.workers)
        elif event == 1:
            rank.order.go_to(chance.choice(positions))
        elif event == 2 and rank.order.offset > 1:
            rank.order.owed = [Stretch(rank.order.epoch, 0, chance.randint(1, rank.order.offset))]
        elif event == 3:
            rank.batch = chance.randint(1, 7)
        wanted, got = rank.step()
        assert wanted == got
        positions.append(rank.order.position())


def test_no_more_is_read_ahead_than_said() -> None:
    rank = Rank(1000, batches=3)
    rank.step()
    deadline = time.monotonic() + 5
    while len(rank.reads) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert len(rank.reads) == 4  # the one that was asked for, and three


def test_an_error_comes_where_its_batch_is_asked_for() -> None:
    rank = Rank(40)
    plain = rank.read

    def failing(share: Share) -> Any:
        if share.stretches[0].start == 8:
            raise OSError("the disk is gone")
        return plain(share)

    rank.ahead = ReadAhead(failing, batches=3)
    rank.step()
    rank.step()
    with pytest.raises(OSError, match="the disk is gone"):
        rank.step()
    wanted, got = rank.step()
    assert wanted == got


def test_threads_end_when_nobody_asks_any_more() -> None:
    rank = Rank(40)
    rank.step()
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline and any(t.name == "minga-reader" for t in threading.enumerate()):
        time.sleep(0.05)
    assert not any(thread.name == "minga-reader" for thread in threading.enumerate())
    wanted, got = rank.step()  # and begin again
    assert wanted == got


def test_reading_goes_on_while_the_batch_is_used() -> None:
    """The next ones are read before anybody asks for them."""
    later = threading.Event()

    def read(share: Share) -> list[int]:
        if share.stretches[0].start == 8:
            later.set()
        indices: list[int] = share.indices.tolist()
        return indices

    rank = Rank(400)
    rank.ahead = ReadAhead(read, batches=3)
    rank.step()
    assert later.wait(10), "nobody reads what comes after the next batch"
    assert rank.ahead.hits == 0


def test_in_advance_keeps_the_order() -> None:
    def read(number: int) -> int:
        time.sleep(0.001 * (number % 3))
        return number

    reads = [lambda number=number: read(number) for number in range(50)]
    assert list(in_advance(reads, 4)) == list(range(50))
    assert list(in_advance([], 4)) == []


def test_in_advance_can_be_left() -> None:
    seen = []

    def read(number: int) -> int:
        seen.append(number)
        return number

    for number in in_advance([lambda number=number: read(number) for number in range(1000)], 4):
        if number == 10:
            break
    assert len(seen) < 20


def test_torch_reads_in_threads_too() -> None:
    data = torch.arange(1000)
    rank = Rank(1000)
    ahead = ReadAhead(lambda share: data[share.indices], batches=4)
    for _ in range(100):
        share = rank.order.take(0, 1, 16)
        assert torch.equal(ahead.take(share, rank.order, lambda order: order.take(0, 1, 16)), share.indices)
