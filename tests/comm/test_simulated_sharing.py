"""Who shares what in virtual time: cables at both ends, ways between sites, and the core of a host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from minga.comm.simulated import Cable, Carrier, ScheduledChange, SimulatedTransport, SimulatedWorld, Wires
from minga.comm.transport import Transport
from minga.runs.network import Link, Network
from minga.simulate.wiring import wires_of

OPEN = Carrier(initial_window=1 << 30)


def seconds_of(size: int, function: Callable[[Transport], object], wires: Wires) -> list[float]:
    world = SimulatedWorld(wires, range(size))

    def body(rank: int) -> float:
        comm = SimulatedTransport(world, rank)
        function(comm)
        return comm.now()

    return world.run(body)


def swap(pairs: dict[int, int], nbytes: int) -> Callable[[Transport], None]:
    """Each of these sends to its partner; partners receive."""

    def body(comm: Transport) -> None:
        space = torch.empty(nbytes, dtype=torch.uint8)
        arrivals = [comm.ireceive(torch.empty_like(space), a) for a, b in pairs.items() if b == comm.rank]
        if comm.rank in pairs:
            comm.send(space, pairs[comm.rank])
        for arrival in arrivals:
            arrival.wait()

    return body


def test_messages_from_one_sender_share_its_cable() -> None:
    def body(comm: Transport) -> None:
        space = torch.empty(1_000_000, dtype=torch.uint8)
        if comm.rank == 0:
            for pending in [comm.isend(space, 1), comm.isend(space, 2)]:
                pending.wait()
        else:
            comm.receive(space, 0)

    assert seconds_of(3, body, wires_of(Network(bandwidth="8mbit"), 3)) == pytest.approx([2.0, 2.0, 2.0])


def test_the_way_between_sites_has_two_directions_of_their_own() -> None:
    """`up` is from the first site to the second; what comes back does not take from it."""
    network = Network(sites=(1, 1), between=Link(up="8mbit", down="16mbit"))
    assert seconds_of(2, swap({0: 1}, 1_000_000), wires_of(network, 2))[0] == pytest.approx(1.0)
    assert seconds_of(2, swap({1: 0}, 1_000_000), wires_of(network, 2))[1] == pytest.approx(0.5)
    assert seconds_of(2, swap({0: 1, 1: 0}, 1_000_000), wires_of(network, 2)) == pytest.approx([1.0, 1.0])


def test_hosts_in_another_order_stay_at_their_sites() -> None:
    network = Network(sites=(1, 2), between=Link(bandwidth="8mbit", delay="50ms"))
    wires = wires_of(network, 3, OPEN).in_order([1, 2, 0])
    assert wires.sites == (1, 1, 0)
    assert wires.delay(0, 1) == 0 and wires.delay(0, 2) == 0.05


@pytest.mark.parametrize(
    ("change", "seconds"),
    [
        (ScheduledChange(time=0.5, host=1, down=5e5), 1.5),
        (ScheduledChange(time=0.5, up=5e5), 1.5),
        (ScheduledChange(time=0.5, host=0, down=5e5), 1.0),
        (ScheduledChange(time=0.5, host=1, up=5e5), 1.0),
    ],
    ids=["the receiver's", "everybody's", "the sender's other way", "the receiver's other way"],
)
def test_a_change_is_of_a_host_and_of_a_direction(change: ScheduledChange, seconds: float) -> None:
    wires = wires_of(Network(bandwidth="8mbit"), 3, OPEN, (change,))
    assert seconds_of(3, swap({0: 1}, 1_000_000), wires)[1] == pytest.approx(seconds)


def test_a_change_without_a_host_is_for_all_of_them() -> None:
    wires = wires_of(Network(bandwidth="8mbit"), 4, OPEN, (ScheduledChange(time=0.5, up=5e5, delay=0.1, speed=0.5),))
    assert seconds_of(4, swap({0: 1, 2: 3}, 1_000_000), wires) == pytest.approx([1.5, 1.6, 1.5, 1.6])
    world = SimulatedWorld(wires, range(4))

    def body(rank: int) -> float:
        SimulatedTransport(world, rank).sleep(1.0)
        world.work(0.0)
        world.work(1.0)
        return world.now()

    assert world.run(body) == pytest.approx([3.0] * 4)


@pytest.mark.parametrize(("cores", "seconds"), [(1.0, 1.25), (2.0, 1.0)])
def test_a_host_with_another_core_trains_on_beside_its_messages(cores: float, seconds: float) -> None:
    carrier = Carrier(receive_seconds=0.15, receive_seconds_per_byte=0.025)
    world = SimulatedWorld(wires_of(None, 2, carrier), range(2))
    for host in world.hosts:
        host.cores = cores

    def body(rank: int) -> float:
        comm = SimulatedTransport(world, rank)
        if rank == 0:
            comm.sleep(0.1)
            comm.send(torch.zeros(1), 1)
            return 0.0
        arrival = comm.ireceive(torch.zeros(1), 0)
        world.work(1.0)
        arrival.wait()
        return comm.now()

    assert world.run(body)[1] == pytest.approx(seconds)


def test_a_job_beside_the_training_takes_the_core_from_it() -> None:
    """What it computes and what it sends; and all of it is work of the host."""
    world = SimulatedWorld(wires_of(None, 2, Carrier(send_seconds=0.25)), range(2))

    def body(rank: int) -> float:
        comm = SimulatedTransport(world, rank)
        if rank == 1:
            comm.receive(torch.zeros(1), 0)
            return 0.0

        def job(beside: Transport) -> None:
            world.work(0.5)
            beside.send(torch.zeros(1), 1)

        comm.start(lambda _: None).wait()
        pending = comm.start(lambda beside: job(comm))
        world.work(1.0)
        pending.wait()
        return comm.now()

    assert world.run(body)[0] == pytest.approx(1.75)
    assert [host.worked for host in world.hosts] == pytest.approx([1.75, 0.0])


def test_all_work_of_a_host_counts() -> None:
    carrier = Carrier(send_seconds=0.1, send_seconds_per_byte=0.01, receive_seconds=0.2, receive_seconds_per_byte=0.02)
    world = SimulatedWorld(wires_of(None, 2, carrier), range(2))
    world.hosts[1].speed = 0.5

    def body(rank: int) -> None:
        world.work(1.0)
        swap({0: 1}, 10)(SimulatedTransport(world, rank))

    world.run(body)
    assert [host.worked for host in world.hosts] == pytest.approx([1.0 + 0.1 + 0.1, 2.0 + 0.2 + 0.2])


def test_whether_gradients_are_wanted_is_each_tasks_own_business() -> None:
    """Torch keeps it for the thread, which all ranks share here."""

    def body(comm: Transport) -> None:
        if comm.rank == 0:
            with torch.no_grad():
                comm.receive(torch.empty(1), 1)
                assert not torch.is_grad_enabled()
            comm.send(torch.zeros(1), 1)
        else:
            comm.sleep(1.0)
            comm.send(torch.zeros(1), 0)
            comm.receive(torch.empty(1), 0)
            assert torch.is_grad_enabled()

    seconds_of(2, body, wires_of(Network(delay="1ms"), 2))
    assert torch.is_grad_enabled()


def test_equal_times_are_in_the_order_in_which_they_were_made() -> None:
    """Whose message is first at a server must not be chance, even where all come at one moment."""

    def body(comm: Transport) -> list[int]:
        if comm.rank:
            comm.send(torch.zeros(1), 0)
            return []
        return [comm.receive(torch.zeros(1), None) for _ in range(comm.size - 1)]

    world = SimulatedWorld(replace(wires_of(None, 12), carrier=OPEN), range(12))
    order = world.run(lambda rank: body(SimulatedTransport(world, rank)))[0]
    assert order == list(range(1, 12))


def test_cables_without_a_limit_cost_nothing() -> None:
    assert seconds_of(2, swap({0: 1}, 1 << 20), Wires(cables=(Cable(), Cable()))) == [0.0, 0.0]
