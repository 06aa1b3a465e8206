"""A run in virtual time is the run: the same parameters, the same bytes, and time that follows from the model."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from helpers.made_profiles import profile_of
from minga import Cluster, Experiment, Summary, Training, Workload, run
from minga.codecs import TopK
from minga.comm import Transport
from minga.comm.simulated import Carrier, ScheduledChange
from minga.errors import PeerLost, UnsupportedError
from minga.measure.event_reader import events_of
from minga.measure.events import Finished
from minga.model.replica import Replica
from minga.model.torch_threads import torch_threads
from minga.runs.experiment import Measuring
from minga.runs.network import Network
from minga.simulate.profile import Profile
from minga.simulate.profiling import USUAL_CODECS
from minga.simulate.simulation import Simulation, simulate
from minga.simulate.wiring import wires_of
from minga.strategies import AllReduce, Strategy
from minga.testing.worlds import train_in_threads

DETERMINISTIC = [
    "ring",
    "ring:bucket_bytes=2000",
    "tree",
    "halving_doubling",
    "mesh",
    "direct",
    "two_level:group_size=2",
    "ring:codec=half",
    "ring:codec=int8",
    "ring:codec=(power_sgd:rank=2)",
    "ring:codec=(top_k:ratio=0.1)",
    "ps:mode=sync",
    "ps:mode=sync,servers=2,placement=beside",
    "local_sgd:period=3",
    "local_sgd:period=3,overlap=2",
    "local_sgd:period=2,post_local=4,codec=int8",
    "diloco:period=4",
    "gossip:algorithm=dpsgd",
    "gossip:algorithm=push_sum,graph=exponential",
    "hierarchical:inside=ring,across=(local_sgd:period=2),site_size=2",
]


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 24), nn.Tanh(), nn.BatchNorm1d(24), nn.Linear(24, 4))


class NetWithDropout(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(Net(), nn.Dropout(0.1))


class Convolutions(nn.Sequential):
    def __init__(self) -> None:
        wide = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        super().__init__(*wide, nn.Linear(9216, 10))


def made_workload() -> Workload:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(70, 8, generator=generator)
    data = TensorDataset(inputs, inputs[:, :4].argmax(dim=1))
    return Workload(name="made", model=Net, train=data, test=data, batch=5, epochs=2)


def with_dropout() -> Workload:
    """Every rank draws random numbers of its own, as it does in a process of its own."""
    return dataclasses.replace(made_workload(), model=NetWithDropout)


def without_buffers() -> Workload:
    """Of which a profile knows nothing."""

    def model() -> nn.Module:
        norm = nn.BatchNorm1d(24, track_running_stats=False)
        return nn.Sequential(nn.Linear(8, 24), nn.ReLU(), norm, nn.Linear(24, 4))

    return dataclasses.replace(made_workload(), model=model)


def of_pictures() -> Workload:
    """Sums so long that two threads would share them, and differ in their last bits."""
    generator = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randn(64, 1, 28, 28, generator=generator), torch.arange(64) % 10)
    return Workload(name="pictures", model=Convolutions, train=data, batch=16, epochs=2)


WORKLOAD = f"{__file__}:made_workload"


def experiment_of(strategy: str | Strategy, nodes: int = 4, **settings: object) -> Experiment:
    training: dict[str, object] = {"epochs": 2, "batch": 5, "seed": 3} | settings
    return Experiment(
        workload=WORKLOAD,
        strategy=strategy,  # type: ignore[arg-type]
        cluster=Cluster(nodes=nodes, network=Network(bandwidth="10mbit", delay="2ms")),
        training=Training(**training),  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def profile() -> Profile:
    return profile_of(made_workload(), WORKLOAD, codecs=(*USUAL_CODECS, TopK(ratio=0.1)))


def parameters_of(simulation: Simulation, rank: int) -> Tensor:
    return simulation.train_states[rank].replica.parameters


@pytest.mark.parametrize("strategy", DETERMINISTIC)
def test_parameters_are_the_same_bits_as_outside(strategy: str, profile: Profile) -> None:
    experiment = experiment_of(strategy)
    real = train_in_threads(experiment, made_workload())
    simulation = Simulation(experiment, profile, wires_of(experiment.cluster.network, experiment.hosts))
    simulation.run()
    for rank in range(experiment.cluster.nodes):
        assert torch.equal(parameters_of(simulation, rank), real[rank].parameters), f"rank {rank}"


def digests_of(summary: Summary) -> list[str]:
    digests = [event.digest for event in events_of(Path(summary.run), Finished)]
    return [digest for digest in digests if digest is not None]


@pytest.mark.slow
def test_however_many_threads_there_are_a_simulated_rank_has_those_of_a_real_one(tmp_path: Path) -> None:
    workload = f"{__file__}:of_pictures"
    experiment = dataclasses.replace(
        experiment_of("ring", 2, batch=16), workload=workload, runs=str(tmp_path), cluster=Cluster(nodes=2)
    )
    with torch_threads(2):
        simulated = simulate(experiment, profile_of(of_pictures(), workload))
        assert torch.get_num_threads() == 2
    real = run(experiment)
    assert digests_of(simulated) == digests_of(real) != []


@pytest.mark.parametrize(("strategy", "nodes"), [("native", 2), ("ps:mode=sync,servers=2", 3)])
def test_processes_and_simulation_agree_on_parameters_and_bytes(
    strategy: str, nodes: int, profile: Profile, tmp_path: Path
) -> None:
    experiment = dataclasses.replace(
        experiment_of(strategy, nodes), workload=f"{__file__}:with_dropout", runs=str(tmp_path)
    )
    simulated = simulate(experiment, profile)
    real = run(dataclasses.replace(experiment, cluster=Cluster(nodes=nodes)))
    assert digests_of(simulated) == digests_of(real) != []
    assert simulated.bytes_sent == real.bytes_sent > 0
    assert simulated.messages_sent == real.messages_sent
    assert simulated.metrics == pytest.approx(real.metrics, abs=1e-6)


@pytest.mark.parametrize("strategy", [*DETERMINISTIC, "ps:mode=async", "adaptive", "native", "switch:at=5"])
def test_sizes_alone_send_the_same_bytes_in_the_same_time(strategy: str) -> None:
    experiment = dataclasses.replace(experiment_of(strategy, evaluate_every=0), workload=f"{__file__}:without_buffers")
    wires = wires_of(experiment.cluster.network, experiment.hosts, Carrier(send_seconds=1e-5, receive_seconds=2e-5))
    profile = profile_of(without_buffers(), experiment.workload, codecs=(*USUAL_CODECS, TopK(ratio=0.1)))
    whole = Simulation(experiment, profile, wires, varied=False).run()
    sizes = Simulation(experiment, profile, wires, mode="sizes", varied=False).run()
    if strategy == "adaptive":  # what it chooses depends on what it has to send
        assert [each.steps for each in sizes] == [each.steps for each in whole]
        return
    assert [each.bytes_sent for each in sizes] == [each.bytes_sent for each in whole]
    for mine, theirs in zip(sizes, whole, strict=True):
        assert mine.step_ends == pytest.approx(theirs.step_ends, rel=1e-9)


def test_the_same_simulation_twice_is_the_same(profile: Profile) -> None:
    experiment = experiment_of("ps:mode=async")
    ends = [
        [priced.step_ends for priced in Simulation(experiment, profile, wires_of(Network(bandwidth="1mbit"), 5)).run()]
        for _ in range(2)
    ]
    assert ends[0] == ends[1]


def test_a_step_takes_what_its_parts_take(profile: Profile) -> None:
    experiment = experiment_of("single", nodes=1, epochs=None, steps=4)
    priced = Simulation(experiment, profile, wires_of(None, 1), varied=False).run()[0]
    compute = profile.compute_of(5)
    expected = compute.seconds + profile.update_seconds
    assert priced.step_ends == pytest.approx([expected * step for step in range(1, 5)], rel=1e-9)


def test_exchange_of_early_buckets_hides_behind_the_rest_of_backward(profile: Profile) -> None:
    """One bucket for all waits for the whole backward pass; many are on their way before its end."""
    network = Network(bandwidth="1mbit")

    def seconds(strategy: str) -> float:
        experiment = experiment_of(strategy, nodes=2, epochs=None, steps=5)
        return Simulation(experiment, profile, wires_of(network, 2), varied=False).run()[0].step_ends[-1]

    assert seconds("ring:bucket_bytes=500") < seconds("ring:bucket_bytes=1000000") - 4 * 0.001


@pytest.mark.parametrize(
    "look",
    [
        lambda gradients: gradients.norm() > 1,
        lambda gradients: gradients.sum().item(),
        lambda gradients: gradients.tolist(),
        lambda gradients: gradients.numpy(),
        lambda gradients: torch.equal(gradients, gradients),
        lambda gradients: gradients[gradients > 0],
    ],
    ids=["if", "item", "tolist", "numpy", "equal", "mask"],
)
def test_who_branches_on_values_is_told_that_there_are_none(look: Callable[[Tensor], Any], profile: Profile) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Curious(AllReduce):
        def step(self, replica: Replica, comm: Transport) -> None:
            if look(replica.gradients):
                replica.gradients.zero_()
            super().step(replica, comm)

    experiment = experiment_of(Curious(collective="ring"))
    with pytest.raises(UnsupportedError, match=r"looks at values.*only sizes"):
        Simulation(experiment, profile, wires_of(None, 4), mode="sizes").run()


def test_an_error_that_has_nothing_to_do_with_values_stays_what_it_is(profile: Profile) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Wrong(AllReduce):
        def step(self, replica: Replica, comm: Transport) -> None:
            raise RuntimeError("a mistake")

    with pytest.raises(RuntimeError, match="a mistake"):
        Simulation(experiment_of(Wrong(collective="ring")), profile, wires_of(None, 4), mode="sizes").run()


def test_a_slow_host_and_a_lost_one(profile: Profile) -> None:
    experiment = experiment_of("ring")
    network = experiment.cluster.network
    even = Simulation(experiment, profile, wires_of(network, 4), varied=False).run()[0]
    slow = wires_of(network, 4, changes=(ScheduledChange(time=0.0, host=2, speed=0.25),))
    assert Simulation(experiment, profile, slow, varied=False).run()[0].step_ends[-1] > 1.5 * even.step_ends[-1]
    lost = wires_of(network, 4, changes=(ScheduledChange(time=even.step_ends[3], host=2, lost=True),))
    with pytest.raises(PeerLost, match="rank 2 is gone"):
        Simulation(experiment, profile, lost, varied=False).run()


def test_a_simulated_run_has_a_summary_like_any_other(profile: Profile, tmp_path: Path) -> None:
    experiment = dataclasses.replace(experiment_of("local_sgd:period=2"), runs=str(tmp_path))
    summary = simulate(experiment, profile)
    assert summary.steps == 8 and summary.samples == 140
    assert 0 < summary.metrics["accuracy"] <= 1
    assert summary.energy is not None and summary.energy.estimated
    assert (Path(summary.run) / "model.safetensors").is_file()
    assert all(rank.work_seconds > 0 for rank in summary.ranks)


def test_what_a_host_takes_is_its_watts_times_its_work_and_its_time(profile: Profile, tmp_path: Path) -> None:
    """Servers beside workers are on their workers' hosts, which count once."""
    even = dataclasses.replace(profile, evaluate_seconds=0.0)
    wanted = {"runs": str(tmp_path), "measuring": Measuring(idle_watts=7.0, core_watts=100.0)}
    alone = dataclasses.replace(experiment_of("single", nodes=1, epochs=None, steps=4), **wanted)  # type: ignore[arg-type]
    summary = simulate(alone, even, varied=False)
    assert summary.energy is not None
    assert summary.energy.joules == pytest.approx(107.0 * summary.seconds, rel=1e-6), "it works all the time"
    beside = experiment_of("ps:mode=sync,servers=2,placement=beside", nodes=2, epochs=None, steps=4)
    slow = Network(bandwidth="10kbit")  # type: ignore[arg-type]
    beside = dataclasses.replace(beside, cluster=Cluster(nodes=2, network=slow), **wanted)  # type: ignore[arg-type]
    summary = simulate(beside, even, varied=False)
    assert summary.energy is not None
    assert 2 * 7.0 < summary.energy.joules / summary.seconds < 2 * 7.0 + 20.0, "two hosts that wait"


def test_a_share_of_a_core_computes_for_longer(profile: Profile) -> None:
    experiment = experiment_of("single", nodes=1, epochs=None, steps=4)

    def seconds(cpu: float) -> float:
        with_share = dataclasses.replace(experiment, cluster=Cluster(nodes=1, cpu=(cpu,)))
        return Simulation(with_share, profile, wires_of(None, 1), varied=False).run()[0].step_ends[-1]

    assert seconds(0.25) == pytest.approx(4 * seconds(1.0))
    assert seconds(2.0) == pytest.approx(seconds(1.0)), "one thread has no use for a second core"


def test_testing_the_model_takes_its_time_divided_among_all(profile: Profile) -> None:
    slow = dataclasses.replace(profile, evaluate_seconds=8.0)

    def seconds(nodes: int, profile: Profile) -> float:
        experiment = experiment_of("ring", nodes=nodes, epochs=1)
        return Simulation(experiment, profile, wires_of(None, nodes), varied=False).run()[0].seconds

    for nodes in (1, 4):
        assert seconds(nodes, slow) - seconds(nodes, profile) == pytest.approx(8.0 / nodes)


def test_steps_vary_as_the_profile_says_and_differently_on_every_rank(profile: Profile) -> None:
    """So the one who is slow this time is somebody else next time, and all wait for it."""
    spread = dataclasses.replace(profile, spread=(0.5, 1.0, 1.5))

    def steps(varied: bool, seed: int) -> list[list[float]]:
        experiment = experiment_of(
            "local_sgd:period=1000", nodes=2, epochs=None, steps=200, seed=seed, evaluate_every=0
        )
        ranks = Simulation(experiment, spread, wires_of(None, 2), mode="sizes", varied=varied).run()
        return [[end - begin for begin, end in itertools.pairwise(rank.step_ends)] for rank in ranks]

    (even, _), (first, second) = steps(False, 1), steps(True, 1)
    compute = profile.compute_of(5).seconds
    assert max(even) - min(even) < 1e-9
    assert 0.4 * compute < min(first) < 0.6 * compute and 1.4 * compute < max(first) < 1.6 * compute
    assert statistics.mean(first) == pytest.approx(statistics.mean(even), rel=0.06)
    assert first != second and first != steps(True, 2)[0]
    assert steps(True, 1)[0] == first


def test_the_time_of_a_step_is_that_of_its_own_samples(profile: Profile) -> None:
    """A rank that gets more of a batch that does not divide evenly takes longer."""
    experiment = experiment_of("local_sgd:period=1000", nodes=2, epochs=None, steps=2, batch=None, total_batch=9)
    ranks = Simulation(experiment, profile, wires_of(None, 2), mode="sizes", varied=False).run()
    taken = [rank.step_ends[1] - rank.step_ends[0] for rank in ranks]
    assert taken[1] - taken[0] == pytest.approx(profile.compute_of(5).seconds - profile.compute_of(4).seconds)
