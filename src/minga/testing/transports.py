"""What every transport must do."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch

from minga.comm.transport import Pending, Transport
from minga.errors import PeerLost, PeerTimeout

__all__ = ["TransportConformance"]


class TransportConformance:
    """Inherit it, and say in `run` how to run a function on some ranks."""

    def run(self, size: int, function: Callable[[Transport], Any], *, timeout_seconds: float = 20.0) -> list[Any]:
        raise NotImplementedError("run function(comm) on `size` ranks and return the results by rank")

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64])
    @pytest.mark.parametrize("length", [0, 1, 1000])
    def test_a_message_arrives_as_it_was_sent(self, dtype: torch.dtype, length: int) -> None:
        sent = (torch.arange(length) % 100).to(dtype)

        def body(comm: Transport) -> torch.Tensor:
            received = torch.full_like(sent, 77)
            if comm.rank == 0:
                comm.send(sent, 1)
                return sent
            assert comm.receive(received, 0) == 0
            return received

        assert torch.equal(self.run(2, body)[1], sent)

    def test_both_directions_at_once_do_not_block_each_other(self) -> None:
        def body(comm: Transport) -> float:
            other = 1 - comm.rank
            received = torch.empty(100_000)
            arrival = comm.ireceive(received, other)
            departure = comm.isend(torch.full((100_000,), float(comm.rank)), other)
            departure.wait()
            arrival.wait()
            return float(received.mean())

        assert self.run(2, body) == [1.0, 0.0]

    def test_messages_of_one_pair_and_tag_keep_their_order(self) -> None:
        def body(comm: Transport) -> list[float]:
            values = [torch.tensor([float(number)]) for number in range(10)]
            if comm.rank == 0:
                for pending in [comm.isend(value, 1) for value in values]:
                    pending.wait()
                return []
            spaces = [torch.empty(1) for _ in values]
            for pending in [comm.ireceive(space, 0) for space in spaces]:
                pending.wait()
            return [float(space) for space in spaces]

        assert self.run(2, body)[1] == [float(number) for number in range(10)]

    @pytest.mark.parametrize("seed", range(6))
    def test_short_and_long_messages_keep_their_order_whoever_is_late(self, seed: int) -> None:
        """Some at a time on either side, and words in between for which one of them has to wait."""
        chance = random.Random(seed)
        lengths = [chance.choice([1, 3000, 20_000, 20_001, 100_000]) for _ in range(30)]
        ahead = {rank: chance.randint(1, 6) for rank in (0, 1)}
        words = {number: chance.randrange(2) for number in range(30) if chance.random() < 0.3}

        def body(comm: Transport) -> list[float]:
            under_way: deque[tuple[Pending, torch.Tensor]] = deque()
            found: list[float] = []

            def settle(left: int) -> None:
                while len(under_way) > left:
                    pending, tensor = under_way.popleft()
                    pending.wait()
                    assert bool((tensor == tensor[0]).all())
                    found.append(float(tensor[0]))

            for number, length in enumerate(lengths):
                if comm.rank == 0:
                    tensor = torch.full((length,), float(number))
                    under_way.append((comm.isend(tensor, 1), tensor))
                else:
                    tensor = torch.empty(length)
                    under_way.append((comm.ireceive(tensor, 0), tensor))
                settle(ahead[comm.rank])
                if number in words:
                    word, teller = torch.zeros(1), words[number]
                    settle(0)
                    if comm.rank == teller:
                        comm.send(word, 1 - teller, tag=1)
                    else:
                        comm.receive(word, teller, tag=1)
            settle(0)
            return found

        assert self.run(2, body) == [[float(number) for number in range(30)]] * 2

    def test_tags_keep_messages_apart(self) -> None:
        def body(comm: Transport) -> list[float]:
            if comm.rank == 0:
                sends = [comm.isend(torch.tensor([float(tag)]), 1, tag) for tag in (1, 2, 3)]
                for pending in sends:
                    pending.wait()
                return []
            spaces = {tag: torch.empty(1) for tag in (3, 1, 2)}
            for tag, space in spaces.items():
                comm.receive(space, 0, tag)
            return [float(spaces[tag]) for tag in (1, 2, 3)]

        assert self.run(2, body)[1] == [1.0, 2.0, 3.0]

    def test_receiving_from_anybody_tells_who_sent(self) -> None:
        def body(comm: Transport) -> dict[int, float]:
            if comm.rank:
                comm.send(torch.tensor([10.0 * comm.rank]), 0, 5)
                return {}
            heard = {}
            for _ in range(comm.size - 1):
                value = torch.empty(1)
                source = comm.receive(value, None, 5)
                heard[source] = float(value)
            return heard

        assert self.run(4, body)[0] == {1: 10.0, 2: 20.0, 3: 30.0}

    def test_background_messages_never_meet_those_of_the_caller(self) -> None:
        def body(comm: Transport) -> list[float]:
            other = 1 - comm.rank
            behind, front = torch.empty(1), torch.empty(1)

            def swap(background: Transport) -> None:
                arrival = background.ireceive(behind, other)
                background.send(torch.tensor([100.0 + comm.rank]), other)
                arrival.wait()

            job = comm.start(swap)
            arrival = comm.ireceive(front, other)
            comm.send(torch.tensor([float(comm.rank)]), other)
            arrival.wait()
            job.wait()
            return [float(front), float(behind)]

        assert self.run(2, body) == [[1.0, 101.0], [0.0, 100.0]]

    def test_background_jobs_run_in_order_and_their_errors_reach_the_caller(self) -> None:
        def body(comm: Transport) -> list[int]:
            done: list[int] = []
            jobs = [comm.start(lambda _, number=number: done.append(number)) for number in range(5)]  # type: ignore[misc]
            for job in jobs:
                job.wait()
            assert all(job.done for job in jobs)
            failing = comm.start(lambda _: int("no number"))  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="no number"):
                failing.wait()
            return done

        assert self.run(1, body) == [[0, 1, 2, 3, 4]]

    def test_a_background_job_tells_whether_it_is_done(self) -> None:
        def body(comm: Transport) -> list[bool]:
            value, early = torch.zeros(1), True
            if comm.rank == 0:
                job = comm.start(lambda background: [background.receive(value, 1), None][1])  # type: ignore[arg-type]
                early = job.done  # the other rank has not got the word yet
                comm.send(value, 1)
                job.wait()
                return [early, job.done]
            comm.receive(value, 0)
            comm.start(lambda background: background.send(value, 0)).wait()
            return []

        assert self.run(2, body)[0] == [False, True]

    def test_a_group_numbers_its_ranks_from_zero(self) -> None:
        def body(comm: Transport) -> Any:
            if comm.rank == 1:
                return None
            group = comm.group([3, 2, 0])
            values = torch.full((1,), float(comm.rank))
            if group.rank == 0:
                heard = {}
                for _ in range(2):
                    source = group.receive(values, None, 9)
                    heard[source] = float(values)
                return heard
            group.send(values, 0, 9)
            return group.rank

        assert self.run(4, body) == [2, None, 1, {1: 2.0, 2: 0.0}]

    def test_its_own_all_reduce_adds_up_also_in_groups_and_in_the_background(self) -> None:
        def body(comm: Transport) -> list[float]:
            everybody, some, behind = (torch.full((5,), float(comm.rank + 1)) for _ in range(3))
            comm.all_reduce(everybody).wait()
            if comm.rank != 1:
                comm.group([0, 2]).all_reduce(some).wait()
            comm.start(lambda background: [background.all_reduce(behind).wait(), None][1]).wait()  # type: ignore[arg-type]
            return [float(everybody[4]), float(some[4]), float(behind[4])]

        assert self.run(3, body) == [[6.0, 4.0, 6.0], [6.0, 2.0, 6.0], [6.0, 4.0, 6.0]]

    @pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.bfloat16, torch.float64])
    @pytest.mark.parametrize("length", [0, 1, 1001, 2_000_003])
    def test_everybody_gets_everybodys_buffer(self, dtype: torch.dtype, length: int) -> None:
        def body(comm: Transport) -> list[bool]:
            def gather(over: Transport, number: int) -> bool:
                buffers = [torch.full((length,), 77).to(dtype) for _ in range(over.size)]
                buffers[over.rank].fill_(over.rank + number)
                over.all_gather(buffers)
                return all(bool((buffer == rank + number).all()) for rank, buffer in enumerate(buffers))

            right = [gather(comm, number) for number in range(3)]
            job = comm.start(lambda beside: right.append(gather(beside, 3)))
            right.append(gather(comm, 4))
            job.wait()
            if comm.rank != 1:
                right.append(gather(comm.group([2, 0]), 5))
            return right

        def some_first(comm: Transport) -> bool:
            if comm.rank == 1:
                return True
            over = comm.group([2, 0])
            buffers = [torch.full((5,), float(over.rank)) for _ in range(2)]
            over.all_gather(buffers)
            return float(buffers[0][0]) == 0.0 and float(buffers[1][0]) == 1.0

        assert all(self.run(3, some_first)), "also when others have never gathered anything"

        assert all(all(right) for right in self.run(3, body))

    def test_a_gathering_without_a_peer_ends_and_names_it(self) -> None:
        def body(comm: Transport) -> None:
            comm.all_gather([torch.zeros(10) for _ in range(2)])
            _in_vain(comm, lambda: comm.all_gather([torch.zeros(10) for _ in range(2)]), over)

        over = threading.Event()
        with pytest.raises(PeerTimeout, match="rank 1"):
            self.run(2, body, timeout_seconds=0.5)

    def test_a_peer_that_fails_ends_a_gathering(self) -> None:
        def body(comm: Transport) -> None:
            comm.all_gather([torch.zeros(10) for _ in range(2)])
            if comm.rank == 1:
                raise ZeroDivisionError("rank 1 breaks")
            with pytest.raises(PeerLost, match="rank 1") as lost:
                comm.all_gather([torch.zeros(10) for _ in range(2)])
            assert not isinstance(lost.value, PeerTimeout), "it is told, not waited for"

        with pytest.raises(ZeroDivisionError):
            self.run(2, body, timeout_seconds=5.0)

    def test_a_receive_that_was_cancelled_disturbs_nobody(self) -> None:
        def body(comm: Transport) -> float:
            value = torch.full((3,), float(comm.rank))
            if comm.rank == 0:
                comm.ireceive(torch.empty(3), 1, 4).cancel()
                comm.receive(value, 1, 6)
            else:
                comm.send(value, 0, 6)
            return float(value[0])

        assert self.run(2, body) == [1.0, 1.0]

    def test_a_wait_ends_at_the_deadline_and_names_who_is_missing(self) -> None:
        def body(comm: Transport) -> None:
            _in_vain(comm, lambda: comm.receive(torch.empty(1), 1), over)

        over, began = threading.Event(), time.monotonic()
        with pytest.raises(PeerTimeout, match="rank 1"):
            self.run(2, body, timeout_seconds=0.5)
        assert time.monotonic() - began < 10

    def test_a_peer_that_fails_does_not_leave_others_waiting(self) -> None:
        def body(comm: Transport) -> None:
            if comm.rank == 1:
                raise ZeroDivisionError("rank 1 breaks")
            with pytest.raises(PeerLost):
                comm.receive(torch.empty(1), 1)

        began = time.monotonic()
        with pytest.raises(ZeroDivisionError):
            self.run(2, body, timeout_seconds=2.0)
        assert time.monotonic() - began < 15

    def test_the_clock_goes_forward(self) -> None:
        def body(comm: Transport) -> float:
            before = comm.now()
            comm.sleep(0.01)
            return comm.now() - before

        assert 0.01 <= self.run(1, body)[0] < 5


def _in_vain(comm: Transport, wait: Callable[[], Any], over: threading.Event) -> None:
    """Rank 0 waits for rank 1, which is there until that is over, and does not answer."""
    if comm.rank == 0:
        try:
            wait()
        finally:
            over.set()
    for _ in range(40):  # where ranks are processes, nobody hears of it
        if not over.is_set():
            comm.sleep(0.05)
