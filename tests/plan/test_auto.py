"""`auto` looks, plans, trains as planned, and looks again when something has changed."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from helpers.made_profiles import profile_of
from minga import Cluster, Experiment, Training, Workload, run
from minga.base.config import FieldError
from minga.codecs import PowerSGD, TopK
from minga.comm.simulated import Carrier, ScheduledChange
from minga.errors import ProtocolError
from minga.model.memory import Memory
from minga.plan.auto import Auto
from minga.plan.cluster import PlannedCluster
from minga.plan.planner import Plan, plan
from minga.runs.network import Network
from minga.simulate.profile import Profile
from minga.simulate.profiling import USUAL_CODECS
from minga.simulate.simulation import Simulation
from minga.simulate.wiring import wires_of
from minga.testing.worlds import train_in_threads

MBIT = 1e6 / 8


def wide() -> Workload:
    """About a megabyte of parameters."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(400, 100, generator=generator)
    data = TensorDataset(inputs, inputs[:, :4].argmax(dim=1))
    return Workload(
        name="wide",
        model=lambda: nn.Sequential(
            nn.Linear(100, 1000), nn.ReLU(), nn.Linear(1000, 150), nn.ReLU(), nn.Linear(150, 4)
        ),
        train=data,
        test=data,
        batch=10,
        epochs=2,
    )


WORKLOAD = f"{__file__}:wide"


@pytest.fixture(scope="module")
def profile() -> Profile:
    made = profile_of(wide(), WORKLOAD, codecs=(*USUAL_CODECS, TopK(ratio=0.01), PowerSGD(rank=2), PowerSGD(rank=4)))
    return dataclasses.replace(made, spread=(1.0,))


def experiment_of(steps: int, nodes: int = 2) -> Experiment:
    return Experiment(
        workload=WORKLOAD,
        strategy="auto",  # type: ignore[arg-type]
        cluster=Cluster(nodes=nodes),
        training=Training(steps=steps, batch=10, evaluate_every=0),
    )


def simulated(profile: Profile, steps: int, network: Network, *changes: ScheduledChange, nodes: int = 2) -> Simulation:
    wires = wires_of(network, nodes, Carrier(), changes)
    simulation = Simulation(experiment_of(steps, nodes), profile, wires, mode="sizes")
    simulation.ends = simulation.run()[0].step_ends  # type: ignore[attr-defined]
    return simulation


def plans_of(simulation: Simulation) -> list[dict[str, object]]:
    plans = [train_state.replica.notes["planned"] for train_state in simulation.train_states.values()]
    assert all(plan == plans[0] for plan in plans), "ranks disagree"
    return list(plans[0])


def test_a_fast_link_is_used_in_every_step(profile: Profile) -> None:
    plans = plans_of(simulated(profile, 20, Network(bandwidth="10gbit")))
    assert [plan["step"] for plan in plans] == [8]
    assert plans[0]["strategy"] != "adaptive"


def test_on_a_slow_link_nobody_waits(profile: Profile) -> None:
    simulation = simulated(profile, 80, Network(bandwidth="10mbit"))
    assert plans_of(simulation)[0]["strategy"] == "adaptive"
    compute = profile.compute_of(10).seconds + profile.update_seconds
    ends = simulation.ends  # type: ignore[attr-defined]
    assert (ends[-1] - ends[20]) / (len(ends) - 21) < 1.15 * compute
    # A whole exchange of gradients in every step would take six steps' time.
    assert profile.nbytes / (10 * MBIT) > 6 * compute


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_link_that_becomes_slow_is_followed(profile: Profile, nodes: int) -> None:
    """And whoever had planned for the fast one and stayed with it would be several times as slow."""
    fast = Network(bandwidth="20gbit")
    moment = 15.0
    fall = ScheduledChange(time=moment, up=10 * MBIT, down=10 * MBIT)
    fixed = dataclasses.replace(experiment_of(700, nodes), strategy="ring")
    ends = Simulation(fixed, profile, wires_of(fast, nodes, Carrier(), (fall,)), mode="sizes").run()[0].step_ends
    compute = profile.compute_of(10).seconds + profile.update_seconds
    assert ends[-1] - ends[-2] > 5 * compute
    simulation = simulated(profile, 700, fast, fall, nodes=nodes)
    ends = simulation.ends  # type: ignore[attr-defined]
    last = (ends[-1] - ends[-100]) / 99
    assert last < 1.3 * compute
    plans = plans_of(simulation)
    assert plans[0]["strategy"] != "adaptive", "nothing had to change"
    assert len(plans) >= 2 and plans[-1]["strategy"] == "adaptive"


def test_auto_plans_with_what_there_is(profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    """In virtual time, where it is known: its own steps, the others' speeds, links, and what codecs take."""
    seen: list[tuple[Profile, PlannedCluster]] = []

    def noted(own: Profile, cluster: PlannedCluster, **options: Any) -> Plan:
        seen.append((own, cluster))
        return plan(own, cluster, **options)

    monkeypatch.setattr("minga.plan.planner.plan", noted)
    wires = wires_of(Network(bandwidth="80mbit", delay="5ms"), 2, Carrier(initial_window=1 << 30))  # type: ignore[arg-type]
    simulation = Simulation(experiment_of(12), profile, wires, mode="sizes")
    simulation.world.hosts[1].speed = 0.5
    simulation.run()
    ((own, cluster),) = seen
    assert own.compute[0].seconds == pytest.approx(profile.compute_of(10).seconds, rel=0.05)
    assert own.update_seconds == pytest.approx(profile.update_seconds, rel=0.05)
    assert own.layers[0].ready == 1.0 and own.layers[-1].ready < 0.5, "backward goes from the last layer to the first"
    assert dataclasses.astuple(own.codecs["int8"]) == pytest.approx(dataclasses.astuple(profile.codecs["int8"]))
    assert cluster.speeds == pytest.approx((1.0, 0.5), rel=0.05)
    assert cluster.wires(2).cables[1].up == pytest.approx(1e7, rel=0.2)  # a quick look, over a long way
    assert cluster.delays[0][1] == pytest.approx(0.005, rel=0.1)


def test_replicas_agree_at_the_end_and_have_learnt(profile: Profile) -> None:
    workload = wide()
    replicas = train_in_threads(experiment_of(40, nodes=3), workload)
    assert all(torch.equal(replica.parameters, replicas[0].parameters) for replica in replicas)
    inputs, targets = workload.train[:]  # type: ignore[index]
    with torch.no_grad():
        assert nn.functional.cross_entropy(replicas[0].model(inputs), targets) < 0.8 * torch.tensor(4.0).log()


def test_a_run_that_ends_before_there_is_a_plan(profile: Profile) -> None:
    replicas = train_in_threads(experiment_of(3), wide())
    assert torch.equal(replicas[0].parameters, replicas[1].parameters)


def test_one_node_has_nothing_to_plan() -> None:
    (replica,) = train_in_threads(experiment_of(5, nodes=1), wide())
    assert replica.step == 5 and "planned" not in replica.notes


def test_a_checkpoint_can_not_say_which_code_to_load() -> None:
    replicas = train_in_threads(experiment_of(3), wide())
    strategy = Auto()
    strategy.recall(replicas[0], Memory({"inner": "evil.py:Evil", "state": None}, {}))
    with pytest.raises(ProtocolError, match=r"evil\.py:Evil.*nothing that auto would have chosen"):
        strategy.resume(replicas[0], _Alone())  # type: ignore[arg-type]


class _Alone:
    size = 2


def test_processes_in_a_real_run(tmp_path: Path) -> None:
    experiment = dataclasses.replace(
        experiment_of(40), runs=str(tmp_path), cluster=Cluster(nodes=2, transport="tcp"), workload=WORKLOAD
    )
    summary = run(experiment)
    assert summary.steps == 40
    assert summary.planned[0]["step"] == 8


def test_a_codec_for_auto_is_refused() -> None:
    with pytest.raises(FieldError, match="auto chooses codecs by itself"):
        Auto(codec=PowerSGD(rank=2))
