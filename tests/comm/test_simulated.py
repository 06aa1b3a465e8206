"""Messages in virtual time: they arrive, they take as long as cables say, and nobody waits in vain unnoticed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from minga.comm.collectives import COLLECTIVES, barrier
from minga.comm.simulated import Cable, Carrier, ScheduledChange, SimulatedTransport, SimulatedWorld, Wires
from minga.comm.transport import Transport
from minga.errors import Deadlock, PeerLost
from minga.runs.network import Link, LinkOverride, Network
from minga.simulate.wiring import wires_of
from minga.testing.transports import TransportConformance


def run_simulated(
    size: int, function: Callable[[Transport], Any], wires: Wires | None = None, **_: object
) -> list[Any]:
    wires = wires or wires_of(None, size)
    world = SimulatedWorld(wires, range(size))
    return world.run(lambda rank: function(SimulatedTransport(world, rank)))


class TestSimulatedTransport(TransportConformance):
    def run(self, size: int, function: Callable[[Transport], Any], *, timeout_seconds: float = 20.0) -> list[Any]:
        return run_simulated(size, function)


class TestWithASlowNetwork(TransportConformance):
    """What arrives does not depend on how long it takes."""

    rendezvous_bytes = 0.0

    def run(self, size: int, function: Callable[[Transport], Any], *, timeout_seconds: float = 20.0) -> list[Any]:
        carrier = Carrier(
            send_seconds=1e-4, receive_seconds=2e-4, rendezvous_bytes=self.rendezvous_bytes, wake_seconds=1e-5
        )
        return run_simulated(size, function, wires_of(Network(bandwidth="10mbit", delay="20ms"), size, carrier))


class TestWithLongMessagesThatWaitForAWord(TestWithASlowNetwork):
    rendezvous_bytes = 64_000.0


def seconds_of(size: int, function: Callable[[Transport], object], wires: Wires) -> list[float]:
    def body(comm: Transport) -> float:
        function(comm)
        return comm.now()

    return run_simulated(size, body, wires)


def one_message(nbytes: int) -> Callable[[Transport], None]:
    def body(comm: Transport) -> None:
        space = torch.empty(nbytes, dtype=torch.uint8)
        if comm.rank == 0:
            comm.send(space, 1)
        elif comm.rank == 1:
            comm.receive(space, 0)

    return body


def test_a_message_takes_the_time_of_its_bytes_and_the_way() -> None:
    wires = wires_of(Network(bandwidth="8mbit", delay="10ms"), 2, Carrier(initial_window=1 << 30))
    sent, received = seconds_of(2, one_message(1_000_000), wires)
    assert sent == pytest.approx(1.0)
    assert received == pytest.approx(1.01)


def test_the_narrower_of_the_two_ends_decides() -> None:
    network = Network(bandwidth="80mbit", hosts={"h2": LinkOverride(down="8mbit")})
    assert seconds_of(2, one_message(1_000_000), wires_of(network, 2))[1] == pytest.approx(1.0)


def test_messages_that_share_a_cable_get_equal_parts_of_it() -> None:
    def body(comm: Transport) -> None:
        space = torch.empty(1_000_000, dtype=torch.uint8)
        if comm.rank == 0:
            for pending in [comm.ireceive(torch.empty_like(space), source) for source in (1, 2)]:
                pending.wait()
        else:
            comm.send(space if comm.rank == 1 else space[:500_000].repeat(2), 0)

    assert seconds_of(3, body, wires_of(Network(bandwidth="8mbit"), 3)) == pytest.approx([2.0, 2.0, 2.0])


def test_what_one_message_cannot_use_is_there_for_the_others() -> None:
    """Rank 3 sends at 1 Mbyte/s, so of rank 0's 4 Mbyte/s three are left for rank 1, not two."""
    wires = Wires(cables=(Cable(down=4e6), Cable(up=9e6), Cable(), Cable(up=1e6)))

    def body(comm: Transport) -> None:
        space = torch.empty(3_000_000, dtype=torch.uint8)
        if comm.rank == 0:
            for pending in [comm.ireceive(torch.empty_like(space), source) for source in (1, 3)]:
                pending.wait()
        elif comm.rank in (1, 3):
            comm.send(space, 0)

    assert seconds_of(4, body, wires)[1] == pytest.approx(1.0)


def test_a_message_that_comes_later_slows_the_one_under_way() -> None:
    def body(comm: Transport) -> None:
        space = torch.empty(1_000_000, dtype=torch.uint8)
        if comm.rank == 0:
            for pending in [comm.ireceive(torch.empty_like(space), source) for source in (1, 2)]:
                pending.wait()
            return
        if comm.rank == 2:
            comm.sleep(0.5)
        comm.send(space, 0)

    # Half of the first has left when the second comes; then both have half a megabyte a second.
    assert seconds_of(3, body, wires_of(Network(bandwidth="8mbit"), 3)) == pytest.approx([2.0, 1.5, 2.0])


def test_sites_share_the_cable_between_them() -> None:
    network = Network(bandwidth="80mbit", sites=(2, 2), between=Link(bandwidth="8mbit", delay="50ms"))

    def body(comm: Transport) -> None:
        space = torch.empty(500_000, dtype=torch.uint8)
        if comm.rank < 2:
            comm.send(space, comm.rank + 2)
        else:
            comm.receive(space, comm.rank - 2)

    wires = wires_of(network, 4, Carrier(initial_window=1 << 30))
    assert seconds_of(4, body, wires) == pytest.approx([1.0, 1.0, 1.05, 1.05])


def seconds_after_pauses(wires: Wires, nbytes: int, pauses: Sequence[float]) -> list[float]:
    """How long a message takes after each of these."""

    def body(comm: Transport) -> list[float]:
        times = []
        for pause in pauses:
            comm.sleep(pause)
            barrier(comm)
            began = comm.now()
            one_message(nbytes)(comm)
            times.append(comm.now() - began)
        return times

    found: list[float] = run_simulated(2, body, wires)[0]
    return found


def test_a_connection_opens_its_window_and_closes_it_after_a_pause() -> None:
    wires = wires_of(Network(bandwidth="80mbit", delay="50ms"), 2)

    first, second, after_a_pause = seconds_after_pauses(wires, 5_000_000, (0.0, 0.0, 10.0))
    assert second == pytest.approx(0.5), "the window is open: the time of the bytes"
    assert first > second + 0.3
    assert after_a_pause == pytest.approx(first, rel=0.1)


def test_a_rendezvous_waits_for_the_receivers_word() -> None:
    def body(comm: Transport) -> None:
        if comm.rank == 1:
            comm.sleep(1.0)
        one_message(1000)(comm)

    wires = wires_of(Network(delay="100ms"), 2, Carrier(rendezvous_bytes=100))
    assert seconds_of(2, body, wires)[1] == pytest.approx(1.2)
    eager = wires_of(Network(delay="100ms"), 2, Carrier(rendezvous_bytes=10_000))
    assert seconds_of(2, body, eager)[1] == pytest.approx(1.0)


def test_who_receives_from_anybody_hears_of_the_sender_first() -> None:
    def body(comm: Transport) -> None:
        space = torch.zeros(250)
        if comm.rank == 0:
            comm.sleep(1.0)
            comm.send(space, 1)
        else:
            comm.receive(space, None)

    wires = wires_of(Network(delay="100ms"), 2, Carrier(rendezvous_bytes=100))
    assert seconds_of(2, body, wires)[1] == pytest.approx(1.3)


def test_a_long_message_does_not_overtake_a_short_one() -> None:
    def body(comm: Transport) -> float:
        short, long = torch.zeros(1), torch.zeros(250)
        if comm.rank == 0:
            short.fill_(1.0)
            long.fill_(2.0)
            for send in [comm.isend(short, 1), comm.isend(long, 1)]:
                send.wait()
        else:
            for receive in [comm.ireceive(short, 0), comm.ireceive(long, 0)]:
                receive.wait()
        assert (float(short), float(long.sum())) == (1.0, 500.0)
        return comm.now()

    wires = wires_of(Network(delay="100ms"), 2, Carrier(rendezvous_bytes=100))
    assert seconds_of(2, body, wires)[1] == pytest.approx(0.3)


def test_who_waits_to_send_to_a_lost_rank_is_told() -> None:
    def body(comm: Transport) -> str:
        if comm.rank == 1:
            comm.sleep(10.0)
            return ""
        try:
            comm.send(torch.zeros(250), 1)
        except PeerLost as error:
            return str(error)
        return "sent"

    wires = wires_of(
        Network(delay="100ms"), 2, Carrier(rendezvous_bytes=100), (ScheduledChange(time=0.05, host=1, lost=True),)
    )
    assert "rank 1 is gone" in run_simulated(2, body, wires)[0]


def test_nobody_has_to_be_asked_in_a_gathering() -> None:
    def body(comm: Transport) -> None:
        comm.all_gather([torch.zeros(250), torch.zeros(250)])

    wires = wires_of(Network(delay="100ms"), 2, Carrier(rendezvous_bytes=100))
    assert seconds_of(2, body, wires) == pytest.approx([0.1, 0.1])


def test_in_a_pause_the_window_is_halved_and_not_forgotten() -> None:
    """A megabyte every so often, over 1 Gbit/s and 10 ms: as Linux does it."""
    wires = wires_of(Network(bandwidth="1gbit", delay="10ms"), 2)

    first, _, open_wide, short, long = seconds_after_pauses(wires, 1_000_000, (0.0, 0.0, 0.0, 0.3, 3.0))
    assert open_wide == pytest.approx(0.008)
    assert short == pytest.approx(open_wide), "half of it is still enough"
    assert open_wide + 0.05 < long < 1.01 * first


def test_the_same_program_runs_the_same_way_again() -> None:
    def once() -> list[Any]:
        def body(comm: Transport) -> tuple[float, list[int]]:
            order = []
            if comm.rank == 0:
                space = torch.empty(1000)
                for _ in range(2 * (comm.size - 1)):
                    order.append(comm.receive(space, None))
                return comm.now(), order
            for number in range(2):
                comm.sleep(0.001 * ((7 * comm.rank + number) % 5))
                comm.send(torch.zeros(1000), 0)
            return comm.now(), order

        return run_simulated(8, body, wires_of(Network(bandwidth="10mbit", delay="1ms"), 8))

    assert once() == once()


@pytest.mark.parametrize("name", sorted(COLLECTIVES))
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_collectives_add_up(name: str, size: int) -> None:
    def body(comm: Transport) -> Tensor:
        vector = torch.arange(1001, dtype=torch.float64) * (comm.rank + 1)
        COLLECTIVES[name](comm, vector)
        return vector

    results = run_simulated(size, body, wires_of(Network(bandwidth="100mbit", delay="1ms"), size))
    expected = torch.arange(1001, dtype=torch.float64) * (size * (size + 1) // 2)
    assert all(torch.allclose(result, expected, rtol=1e-12) for result in results)


def test_a_deadlock_names_who_waits_for_whom() -> None:
    def body(comm: Transport) -> None:
        comm.receive(torch.empty(3), 1 - comm.rank, tag=7)

    with pytest.raises(Deadlock, match=r"rank 0 waits to receive from rank 1 \(12 bytes, tag 7\); rank 1 waits"):
        run_simulated(2, body)


def test_a_cable_that_changes_is_followed() -> None:
    changes = (
        ScheduledChange(time=0.5, host=0, up=5e5),
        ScheduledChange(time=1.0, host=0, up=0.0),
        ScheduledChange(time=2.0, host=0, up=1e6),
    )
    wires = wires_of(Network(bandwidth="8mbit"), 2, changes=changes)
    # Half at full speed, a quarter at half of it, a second of nothing, the last quarter at full speed again.
    assert seconds_of(2, one_message(1_000_000), wires)[0] == pytest.approx(2.25)


def test_a_cable_that_changes_leaves_the_way_between_sites_as_it_was() -> None:
    network = Network(delay="10ms", sites=(1, 1), between=Link(delay="100ms"))  # type: ignore[arg-type]
    wires = wires_of(network, 2, Carrier(), (ScheduledChange(time=0.0, host=0, delay=0.05),))

    def body(comm: Transport) -> None:
        comm.sleep(1.0)
        one_message(8)(comm)

    assert seconds_of(2, body, wires)[1] == pytest.approx(1.15)


def test_a_host_that_is_lost_is_missed_by_who_waits_for_it() -> None:
    wires = wires_of(Network(bandwidth="8mbit"), 2, changes=(ScheduledChange(time=0.5, host=1, lost=True),))

    def body(comm: Transport) -> str:
        if comm.rank == 1:
            comm.sleep(10.0)
            comm.send(torch.zeros(1), 0)
            return "sent"
        with pytest.raises(PeerLost, match=r"rank 1 is gone \(its host was lost at 0.5 s\)"):
            comm.receive(torch.zeros(1), 1)
        return f"missed at {comm.now():g}"

    assert run_simulated(2, body, wires) == ["missed at 0.5"]


def test_a_slower_host_computes_for_longer() -> None:
    world = SimulatedWorld(wires_of(None, 1, changes=(ScheduledChange(time=1.0, speed=0.5),)), [0])

    def body(rank: int) -> float:
        world.work(1.0)
        world.work(1.0)
        return world.now()

    assert world.run(body) == pytest.approx([3.0])


def test_every_rank_has_random_numbers_of_its_own() -> None:
    def body(comm: Transport) -> list[float]:
        torch.manual_seed(comm.rank)
        drawn = []
        for _ in range(5):
            drawn.append(float(torch.rand(1)))
            barrier(comm)
        return drawn

    before = torch.get_rng_state()
    together = run_simulated(3, body)
    assert torch.equal(torch.get_rng_state(), before)
    for rank, drawn in enumerate(together):
        torch.manual_seed(rank)
        assert drawn == [float(torch.rand(1)) for _ in range(5)]
