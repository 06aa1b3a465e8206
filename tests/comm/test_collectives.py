from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from minga.comm.collectives import COLLECTIVES, all_reduce_mean, broadcast, ring, two_level
from minga.comm.threads import run_threads
from minga.comm.traced import TracedTransport
from minga.comm.transport import Transport
from minga.measure.traffic import Traffic
from minga.testing import CollectiveConformance, run_gloo_threads


class TestNative(CollectiveConformance):
    def collective(self) -> Callable[[Transport, Tensor], None]:
        return COLLECTIVES["native"]


class TestRing(CollectiveConformance):
    def collective(self) -> Callable[[Transport, Tensor], None]:
        return COLLECTIVES["ring"]


class TestTree(CollectiveConformance):
    def collective(self) -> Callable[[Transport, Tensor], None]:
        return COLLECTIVES["tree"]


class TestHalvingDoubling(CollectiveConformance):
    def collective(self) -> Callable[[Transport, Tensor], None]:
        return COLLECTIVES["halving_doubling"]


class TestMesh(CollectiveConformance):
    def collective(self) -> Callable[[Transport, Tensor], None]:
        return COLLECTIVES["mesh"]


class TestDirect(CollectiveConformance):
    def collective(self) -> Callable[[Transport, Tensor], None]:
        return COLLECTIVES["direct"]


class TestTwoLevelByHost(CollectiveConformance):
    def collective(self) -> Callable[[Transport, Tensor], None]:
        return COLLECTIVES["two_level"]

    def run(self, size: int, function: Callable[[Transport], Any]) -> list[Any]:
        return run_threads(size, function, hosts=[f"host{rank % 3}" for rank in range(size)])


class TestTwoLevelInPairs(CollectiveConformance):
    def collective(self) -> Callable[[Transport, Tensor], None]:
        return partial(two_level, group_size=2)


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("ranks", [1, 3, 4, 7])
@pytest.mark.parametrize("length", [0, 1, 5, 300_000])
def test_over_real_sockets(name: str, ranks: int, length: int) -> None:
    def body(comm: Transport) -> Tensor:
        vector = torch.full((length,), float(comm.rank + 1))
        COLLECTIVES[name](comm, vector)
        return vector

    for result in run_gloo_threads(ranks, body):
        assert torch.equal(result, torch.full((length,), ranks * (ranks + 1) / 2))


def test_only_one_rank_of_each_host_talks_to_other_hosts() -> None:
    """Two hosts with three ranks: what crosses between them is one ring of two leaders."""
    crossed: list[int] = []

    def body(comm: Transport) -> None:
        sends = comm.isend

        def watched(tensor: Tensor, to: int, tag: int = 0) -> Any:
            if comm.hosts[to] != comm.hosts[comm.rank]:
                crossed.append(tensor.numel())
            return sends(tensor, to, tag)

        comm.isend = watched  # type: ignore[method-assign]
        two_level(comm, torch.ones(100))

    run_threads(6, body, hosts=["a", "a", "a", "b", "b", "b"])
    assert sum(crossed) == 2 * 100


@pytest.mark.parametrize("root", [0, 2, 4])
def test_broadcast_from_any_root(root: int) -> None:
    def body(comm: Transport) -> Tensor:
        vector = torch.full((9,), float(comm.rank))
        broadcast(comm, vector, root)
        return vector

    assert all(torch.equal(result, torch.full((9,), float(root))) for result in run_threads(5, body))


def test_the_mean_is_the_sum_divided_once() -> None:
    def body(comm: Transport) -> Tensor:
        vector = torch.tensor([1.0, 10.0, 100.0]) * (comm.rank + 1)
        all_reduce_mean(comm, vector)
        return vector

    for result in run_threads(3, body):
        assert torch.equal(result, torch.tensor([2.0, 20.0, 200.0]))


@pytest.mark.parametrize(("name", "times"), [("ring", 2 * 3), ("mesh", 2 * 3), ("tree", 2 * 3), ("native", 2 * 3)])
def test_bytes_on_the_wire_are_those_of_the_theory(name: str, times: int) -> None:
    """All ranks together send 2 (n-1) times the vector, whichever way it goes."""

    def body(comm: Transport) -> int:
        traffic = Traffic()
        COLLECTIVES[name](TracedTransport(comm, traffic), torch.ones(1000, dtype=torch.float64))
        return traffic.bytes

    assert sum(run_threads(4, body)) == times * 8000


def test_a_ring_sends_to_one_neighbour_only() -> None:
    targets: set[tuple[int, int]] = set()

    def body(comm: Transport) -> None:
        sends = comm.isend

        def watched(tensor: Tensor, to: int, tag: int = 0) -> Any:
            targets.add((comm.rank, to))
            return sends(tensor, to, tag)

        comm.isend = watched  # type: ignore[method-assign]
        ring(comm, torch.ones(64))

    run_threads(4, body)
    assert targets == {(0, 1), (1, 2), (2, 3), (3, 0)}
