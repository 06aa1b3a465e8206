"""Exchanges that hide behind computing, in virtual time, where nothing else disturbs: how long a step takes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from helpers.made_profiles import profile_of
from minga import Cluster, Experiment, Training, Workload
from minga.codecs import Sign
from minga.comm.simulated import Carrier, ScheduledChange
from minga.runs.network import Link, Network
from minga.simulate.profile import Profile
from minga.simulate.profiling import USUAL_CODECS
from minga.simulate.simulation import Simulation
from minga.simulate.wiring import wires_of

PERIOD, STEPS = 8, 80
MBIT = 1e6 / 8


def wide() -> Workload:
    """About a megabyte of parameters."""
    data = TensorDataset(torch.zeros(400, 100), torch.zeros(400, dtype=torch.int64))
    return Workload(name="wide", model=lambda: nn.Linear(100, 2500), train=data, batch=10)


@pytest.fixture(scope="module")
def profile() -> Profile:
    made = profile_of(wide(), f"{Path(__file__)}:wide", codecs=(*USUAL_CODECS, Sign()))
    return dataclasses.replace(made, spread=(1.0,))


def compute_seconds(profile: Profile) -> float:
    return profile.compute_of(10).seconds + profile.update_seconds


def simulated(
    profile: Profile, strategy: str, steps: int, network: Network, *changes: ScheduledChange, nodes: int = 2
) -> Simulation:
    experiment = Experiment(
        workload=profile.workload,
        strategy=strategy,  # type: ignore[arg-type]
        cluster=Cluster(nodes=nodes),
        training=Training(steps=steps, batch=10, evaluate_every=0),
    )
    return Simulation(experiment, profile, wires_of(network, nodes, Carrier(), changes), mode="sizes")


@pytest.mark.parametrize(("strategy", "overlap"), [("local_sgd", PERIOD), ("diloco", PERIOD - 1)])
@pytest.mark.parametrize("nodes", [2, 4])
def test_an_exchange_of_80_percent_of_computing_costs_less_than_5_percent_of_a_step(
    profile: Profile, strategy: str, overlap: int, nodes: int
) -> None:
    compute = compute_seconds(profile)
    sent = profile.nbytes * 2 * (1 - 1 / nodes)
    network = Network(bandwidth=8 * sent / (0.8 * PERIOD * compute))  # type: ignore[arg-type]

    def step(overlap: int) -> float:
        spec = f"{strategy}:period={PERIOD},overlap={overlap}"
        ends = simulated(profile, spec, STEPS, network, nodes=nodes).run()[0].step_ends
        return (ends[-1] - ends[2 * PERIOD - 1]) / (STEPS - 2 * PERIOD)

    assert step(0) > 1.75 * compute, "without overlap they wait for all of it"
    assert step(overlap) < 1.05 * compute


@pytest.mark.parametrize("nodes", [2, 3])
def test_adaptive_follows_a_link_that_falls_and_rises_again(profile: Profile, nodes: int) -> None:
    """At each speed it makes use of the link, and waits for it nowhere."""
    compute, phase = compute_seconds(profile), 300
    slow = ScheduledChange(time=phase * compute, up=3 * MBIT, down=3 * MBIT)
    fast = ScheduledChange(time=2 * phase * compute, up=1000 * MBIT, down=1000 * MBIT)
    simulation = simulated(profile, "adaptive", 3 * phase, Network(bandwidth="1gbit"), slow, fast, nodes=nodes)
    rank = simulation.run()[0]
    seconds, sent = [], []
    for first in (0, phase, 2 * phase):  # the later half of each phase
        begin, end = first + phase // 2, min(first + phase, 3 * phase) - 10
        seconds.append((rank.step_ends[end] - rank.step_ends[begin]) / (end - begin))
        sent.append((rank.bytes_at[end] - rank.bytes_at[begin]) / (end - begin))
    assert max(seconds) < 1.1 * compute
    assert sent[0] > 10 * sent[1], "on the slow link it sends little"
    assert sent[2] > 10 * sent[1], "and on the fast one again more"
    assert sent[1] > 0.1 * 3 * MBIT * compute, "but as much as the slow link has room for, or nearly"


@pytest.mark.parametrize(
    "across",
    [
        f"local_sgd:period={PERIOD},overlap={PERIOD}",
        f"diloco:period={PERIOD},overlap={PERIOD - 1}",
        f"gossip:period={PERIOD}",
        "adaptive",
    ],
)
def test_between_sites_an_exchange_is_hidden_too(profile: Profile, across: str) -> None:
    """Gradients are averaged inside a site in every step, and must not wait for what goes between sites."""
    compute = compute_seconds(profile)
    thin = Link(bandwidth=8 * profile.nbytes / (0.8 * PERIOD * compute))  # type: ignore[arg-type]
    network = Network(bandwidth="1000gbit", sites=(2, 2), between=thin)

    def step(across: str) -> float:
        spec = f"hierarchical:inside=ring,across=({across})"
        ranks = simulated(profile, spec, STEPS, network, nodes=4).run()
        ends = ranks[0].step_ends
        assert ranks[1].bytes_at[-1] >= STEPS * profile.nbytes, "all of a site take part in its averaging"
        return (ends[-1] - ends[2 * PERIOD - 1]) / (STEPS - 2 * PERIOD)

    inside = step(f"local_sgd:period={10 * STEPS}")  # the same without anything between sites
    assert step(f"local_sgd:period={PERIOD}") > 1.5 * inside, "without overlap they wait for all of it"
    assert step(across) < 1.05 * inside
