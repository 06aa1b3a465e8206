"""What the conformance kit does not say of parameter servers: staleness, shares, waiting."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from minga import Cluster, Experiment, Training, Workload, run
from minga.base.config import FieldError
from minga.strategies import ParameterServer
from minga.testing import train_in_threads
from minga.testing.problems import blobs


def histogram(strategy: ParameterServer, speeds: tuple[float, ...], steps: int = 40) -> dict[int, int]:
    experiment = Experiment(
        workload="blobs",
        strategy=strategy,
        cluster=Cluster(nodes=len(speeds), speeds=speeds),
        training=Training(steps=steps),
    )
    server = train_in_threads(experiment, blobs())[-1]
    staleness: dict[int, int] = server.notes["staleness"]
    assert sum(staleness.values()) == steps * len(speeds)
    return staleness


@pytest.mark.parametrize("bound", [0, 1, 2, 5])
def test_nobody_is_further_ahead_than_the_bound(bound: int) -> None:
    staleness = histogram(ParameterServer(mode="ssp", staleness=bound), speeds=(1.0, 1.0, 1.0, 0.02))
    assert max(staleness) <= bound
    assert bound == 0 or max(staleness) > 0  # the slow one does make the others run ahead


def test_without_a_bound_fast_workers_run_ahead() -> None:
    staleness = histogram(ParameterServer(mode="async"), speeds=(1.0, 1.0, 1.0, 0.02))
    assert max(staleness) > 10


def test_synchronous_workers_are_never_ahead() -> None:
    assert set(histogram(ParameterServer(mode="sync"), speeds=(1.0, 0.1))) == {0}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["mode=async", "mode=ssp,staleness=3"])
def test_eight_workers_on_processes_reach_the_synchronous_accuracy(tmp_path: object, mode: str) -> None:
    def accuracy(strategy: str) -> float:
        experiment = Experiment(workload="digits", strategy=strategy, cluster=Cluster(nodes=8), runs=str(tmp_path))
        reached = run(experiment).accuracy
        assert reached is not None
        return reached

    assert accuracy(f"ps:{mode}") >= accuracy("ps:mode=sync") - 0.02


def test_the_bound_holds_on_processes_with_a_slow_worker(tmp_path: object) -> None:
    experiment = Experiment(
        workload="digits",
        strategy="ps:mode=ssp,staleness=2,servers=2",
        cluster=Cluster(nodes=4, speeds=(1, 1, 1, 0.25)),
        training=Training(epochs=2),
        runs=str(tmp_path),
    )
    summary = run(experiment)
    assert summary.staleness is not None
    assert 0 < max(map(int, summary.staleness)) <= 2
    slow, fast = summary.ranks[3], summary.ranks[0]
    assert slow.wait_seconds < fast.wait_seconds  # the one that the others wait for


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"servers": 0}, "servers: should be at least 1, not 0"),
        ({"mode": "ssp", "staleness": -1}, "staleness: should be 0 or more"),
        ({"mode": "async", "staleness": 2}, "staleness: is for mode=ssp"),
        ({"mode": "asynk"}, "mode: .*'sync', 'async' or 'ssp'"),
    ],
)
def test_impossible_settings(fields: dict[str, object], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        ParameterServer(**fields)  # type: ignore[arg-type]


def test_more_servers_than_workers_can_not_live_beside_them() -> None:
    with pytest.raises(FieldError, match="3 servers beside workers need at least 3"):
        Experiment(workload="digits", strategy="ps:servers=3,placement=beside", cluster=Cluster(nodes=2))


@pytest.mark.parametrize(
    ("strategy", "least", "most"),
    [
        ("ps:mode=sync", 5, 5),
        ("ps:mode=async,damping=workers", 5, 5),
        ("ps:mode=async", 2, 5),  # gradients that are very late count less
        ("ps:mode=async,damping=none", 20, 20),
    ],
)
def test_an_asynchronous_round_moves_as_far_as_a_synchronous_step(strategy: str, least: float, most: float) -> None:
    """The gradient is always 1 and the learning rate too: 5 steps of 4 workers should move the weight by 5."""
    ones = TensorDataset(torch.ones(160, 1, dtype=torch.float64), torch.zeros(160))
    workload = Workload(
        name="slope",
        model=lambda: nn.Linear(1, 1, bias=False).double(),
        train=ones,
        loss=lambda outputs, targets: outputs.mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
    )
    experiment = Experiment(
        workload="slope", strategy=strategy, cluster=Cluster(nodes=4), training=Training(steps=5, batch=8)
    )
    torch.manual_seed(0)
    start = float(next(workload.model().parameters()).detach())
    moved = start - float(train_in_threads(experiment, workload)[0].parameters)
    assert least - 1e-9 <= moved <= most + 1e-9
