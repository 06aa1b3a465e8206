"""Networks as data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from minga.base.config import FieldError, build
from minga.errors import ConfigError
from minga.lab.laboratory import Lab
from minga.runs.experiment import Cluster, Experiment, load
from minga.runs.network import Link, LinkOverride, Network


def test_a_cable_has_two_directions() -> None:
    link = Link(bandwidth=10e6, up=1e6)
    assert (link.bandwidth_up, link.bandwidth_down) == (1e6, 10e6)
    assert Link().bandwidth_up is None


def test_exceptions_keep_what_holds_for_all() -> None:
    network = build(Network, {"bandwidth": "10mbit", "delay": "5ms", "hosts": {"h2": {"bandwidth": "1mbit"}}})
    assert network.link_of("h1") == Link(bandwidth=10e6, delay=0.005)
    assert network.link_of("h2") == Link(bandwidth=1e6, delay=0.005)


def test_what_is_said_of_a_host_stands_above_one_way_said_for_all() -> None:
    network = Network(bandwidth=10e6, up=1e6, hosts={"h2": LinkOverride(bandwidth=5e6)})
    assert network.link_of("h2").bandwidth_up == 5e6


def test_zeros_are_said_too() -> None:
    network = build(Network, {"delay": "5ms", "jitter": "1ms", "loss": "1%", "hosts": {"h2": {"delay": 0, "loss": 0}}})
    assert network.link_of("h2") == Link()
    assert network.link_of("h1") == Link(delay=0.005, jitter=0.001, loss=0.01)


def test_jitter_alone_may_differ() -> None:
    network = build(Network, {"delay": "5ms", "hosts": {"h2": {"jitter": "1ms"}}})
    assert network.link_of("h2") == Link(delay=0.005, jitter=0.001)


def test_an_override_that_does_not_fit_is_told_with_its_place() -> None:
    network = build(Network, {"delay": "5ms", "hosts": {"h2": {"jitter": "9ms"}}})
    with pytest.raises(FieldError, match=r"hosts\.h2\.jitter: should be from 0 to the delay"):
        network.check_hosts(2)


def test_a_lab_has_an_end() -> None:
    with pytest.raises(ConfigError, match=r"at most 200 hosts, not 201; minga simulate"):
        Lab(Network(), hosts=201)


def test_sites() -> None:
    network = Network(sites=(2, 1), between=Link(bandwidth=1e6))
    assert [network.site_of(index) for index in range(4)] == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"bandwidth": 0}, "bandwidth"),
        ({"up": math.inf}, "up"),
        ({"delay": -1}, "delay"),
        ({"delay": 0.001, "jitter": 0.002}, "jitter"),
        ({"loss": 1}, "loss"),
        ({"sites": (1, 2, 3)}, "sites"),
        ({"sites": (0, 2)}, "sites"),
        ({"between": Link(bandwidth=1e6)}, "between"),
    ],
)
def test_what_can_not_be(fields: dict[str, Any], place: str) -> None:
    with pytest.raises(FieldError) as error:
        Network(**fields)
    assert error.value.path == (place,)


def test_an_experiment_with_a_network_survives_its_file(tmp_path: Path) -> None:
    network = Network(
        bandwidth=10e6, delay=0.005, hosts={"h2": LinkOverride(bandwidth=1e6)}, sites=(2, 2), between=Link(delay=0.01)
    )
    experiment = Experiment(workload="digits", cluster=Cluster(nodes=4, network=network, cpu=(1, 1, 1, 0.5)))
    path = tmp_path / "experiment.toml"
    path.write_text(experiment.to_toml())
    assert load(path) == experiment


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"nodes": 2, "network": {"hosts": {"h9": {}}}}, r"cluster.network.hosts.h9: there is no such host"),
        ({"nodes": 2, "network": {"sites": [2, 2]}}, r"cluster.network.sites: has 4 hosts"),
        ({"nodes": 3, "cpu": [1, 0.5]}, r"cluster.cpu: should have 1 or 3 values, not 2"),
        ({"nodes": 2, "cpu": [0]}, r"cluster.cpu: "),
    ],
)
def test_a_cluster_whose_parts_do_not_fit(cluster: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(Experiment, {"workload": "digits", "cluster": cluster})


def test_servers_are_hosts_unless_they_live_beside_workers() -> None:
    own = build(Experiment, {"workload": "digits", "strategy": "ps:servers=2", "cluster": {"nodes": 3}})
    beside = build(
        Experiment, {"workload": "digits", "strategy": "ps:servers=2,placement=beside", "cluster": {"nodes": 3}}
    )
    assert (own.hosts, beside.hosts) == (5, 3)
