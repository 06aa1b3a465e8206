"""Links as measured: right in a simulation, whose links are known, and in the form that plans read."""

from __future__ import annotations

import tomllib

import pytest

from minga.comm.probing import Links, probe
from minga.comm.simulated import Carrier, SimulatedTransport, SimulatedWorld
from minga.comm.threads import run_threads
from minga.plan.cluster import cluster_of, to_toml
from minga.runs.network import LinkOverride, Network
from minga.simulate.wiring import wires_of


def probed(network: Network, nodes: int) -> list[Links]:
    world = SimulatedWorld(wires_of(network, nodes, Carrier(initial_window=1 << 30)), range(nodes))
    return world.run(lambda rank: probe(SimulatedTransport(world, rank)))


def test_known_links_are_found() -> None:
    network = Network(bandwidth="80mbit", delay="10ms", hosts={"h2": LinkOverride(up="8mbit")})
    found = probed(network, 3)
    assert found[0] == found[1] == found[2]
    assert found[0].bandwidth[0][1] == pytest.approx(1e7, rel=0.1)
    assert found[0].bandwidth[1][0] == pytest.approx(1e6, rel=0.1)
    assert found[0].delay[0][2] == pytest.approx(0.01, rel=0.05)
    up, down = found[0].of_host(1)
    assert (up, down) == (pytest.approx(1e6, rel=0.1), pytest.approx(1e7, rel=0.1))


@pytest.mark.parametrize("bandwidth", ["100mbit", "10gbit"])
def test_what_a_message_costs_is_found_and_planned_with(bandwidth: str) -> None:
    """Its work is part of the way of a word too, and must not count twice."""
    carrier = Carrier(initial_window=1 << 30, send_seconds=2e-4, receive_seconds=2e-4)
    network = Network(bandwidth=bandwidth, delay="1ms")  # type: ignore[arg-type]
    world = SimulatedWorld(wires_of(network, 2, carrier), range(2))
    links = world.run(lambda rank: probe(SimulatedTransport(world, rank)))[0]
    assert links.message_seconds == pytest.approx(2e-4, rel=0.15)
    machines = cluster_of(links)
    assert machines.carrier.send_seconds == machines.carrier.receive_seconds == pytest.approx(2e-4, rel=0.15)
    assert machines.delays[0][1] == pytest.approx(0.001, rel=0.1)


def test_of_many_nodes_neighbours_are_measured() -> None:
    links = probed(Network(bandwidth="80mbit", delay="1ms"), 6)[0]
    assert links.bandwidth[3][4] > 0 and links.bandwidth[0][5] > 0
    assert links.bandwidth[1][4] == 0
    assert cluster_of(links).delays[1][4] == pytest.approx(0.001, rel=0.1)


def test_threads_can_be_probed_too() -> None:
    links = run_threads(2, probe)[0]
    assert links.bandwidth[0][1] > 1e6
    assert 0 < links.delay[0][1] < 0.1


def test_what_was_measured_is_a_cluster_for_plans() -> None:
    links = probed(Network(bandwidth="8mbit", delay="5ms"), 2)[0]
    machines = cluster_of(links)
    assert machines.wires(2).cables[0].up == pytest.approx(1e6, rel=0.1)
    assert machines.wires(2).delay(0, 1) == pytest.approx(0.005, rel=0.05)
    assert tomllib.loads(to_toml(links))["nodes"] == 2
