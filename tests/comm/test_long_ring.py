"""Rings priced as a whole take as long as their messages do."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from minga.comm.collectives import ring
from minga.comm.simulated import Cable, Carrier, ScheduledChange, SimulatedTransport, SimulatedWorld, Wires
from minga.comm.simulated.long_ring import LongRings
from minga.comm.traced import TracedTransport
from minga.measure.traffic import Traffic

CARRIER = Carrier(send_seconds=2e-5, receive_seconds=3e-5, send_seconds_per_byte=1e-9, wake_seconds=1e-5)
UNEVEN = tuple(Cable(up=1e6 * (1 + rank % 3), down=1e6 * (2 + rank % 2), delay=1e-3 * (rank % 4)) for rank in range(17))


def ends_of(wires: Wires, elements: int, rings: int = 2) -> list[tuple[float, int, int]]:
    world = SimulatedWorld(wires, range(wires.hosts), own_random_numbers=False)

    def program(rank: int) -> tuple[float, int, int]:
        traffic = Traffic()
        comm = TracedTransport(SimulatedTransport(world, rank), traffic)
        vector = torch.empty(elements, device="meta")
        for number in range(rings):
            comm.sleep(1e-3 * ((7 * rank + number) % 5))  # they don't come all at once
            ring(comm, vector)
        return comm.now(), traffic.bytes, traffic.messages

    return world.run(program)


@pytest.mark.parametrize("elements", [5, 17, 1_000, 100_003])
@pytest.mark.parametrize(
    "wires",
    [
        Wires(cables=(Cable(up=1e6, down=1e6),) * 16),
        Wires(cables=(Cable(up=1e6, down=1e6, delay=0.02),) * 16),
        Wires(cables=UNEVEN, carrier=CARRIER),
        Wires(cables=UNEVEN, carrier=replace(CARRIER, rendezvous_bytes=200)),
    ],
    ids=["equal", "far away", "uneven", "asked for"],
)
def test_it_takes_as_long_as_its_messages(wires: Wires, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = ends_of(wires, elements)
    monkeypatch.setattr(LongRings, "possible", lambda *_: False)
    # Words about messages take some time on the wire too, which is left out where rings are priced as a whole.
    tolerance = 1e-9 if wires.carrier.rendezvous_bytes == math.inf else 5e-3
    for mine, theirs in zip(at_once, ends_of(wires, elements), strict=True):
        assert mine == pytest.approx(theirs, rel=tolerance)


def test_a_thousand_ranks_are_priced_in_seconds() -> None:
    began = time.monotonic()
    ends = ends_of(Wires(cables=(Cable(up=1e6, down=1e6, delay=0.001),) * 1000), 1_000_000, rings=1)
    assert time.monotonic() - began < 10
    # 1999 of 2000 chunks of 4 kB at 1 MB/s, and as many ways.
    assert max(end for end, _, _ in ends) == pytest.approx(1998 * (0.004 + 0.001), rel=0.02)


def test_its_work_is_that_of_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each host, for energy and for waiting."""
    wires = Wires(cables=UNEVEN, carrier=replace(CARRIER, receive_seconds_per_byte=2e-9))

    def worked(beside: bool) -> list[tuple[float, float]]:
        world = SimulatedWorld(wires, range(wires.hosts), own_random_numbers=False)

        def program(rank: int) -> None:
            comm, vector = SimulatedTransport(world, rank), torch.empty(100_003, device="meta")
            if beside:
                comm.start(lambda background: ring(background, vector)).wait()
            else:
                ring(comm, vector)

        world.run(program)
        return [(host.worked, host.charged) for host in world.hosts]

    at_once = [worked(beside) for beside in (False, True)]
    monkeypatch.setattr(LongRings, "possible", lambda *_: False)
    for beside, found in zip((False, True), at_once, strict=True):
        assert all(total > 0 for total, _ in found)
        for mine, theirs in zip(found, worked(beside), strict=True):
            assert mine == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize(
    ("wires", "hosts"),
    [
        (Wires(cables=(Cable(),) * 16, sites=(0,) * 8 + (1,) * 8), range(16)),
        (Wires(cables=(Cable(),) * 16, changes=(ScheduledChange(time=1.0, up=1e6),)), range(16)),
        (Wires(cables=(Cable(),) * 16), [rank // 2 for rank in range(32)]),
    ],
    ids=["a way that sites share", "cables that change", "ranks that share a host"],
)
def test_where_ranks_share_something_messages_are_gone_through(wires: Wires, hosts: Sequence[int]) -> None:
    world = SimulatedWorld(wires, hosts)
    assert not world.rings.possible(range(world.size), 1000)
    assert SimulatedWorld(Wires(cables=(Cable(),) * 16), range(16)).rings.possible(range(16), 1000)
