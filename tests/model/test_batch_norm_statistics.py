"""What BatchNorm layers remember: only steps that counted, and each of them once."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from minga.comm.threads import ThreadWorld, run_threads
from minga.comm.transport import Transport
from minga.errors import WorkloadError
from minga.model.buffers import BatchNormStatistics, take_statistics
from minga.model.replica import Replica
from minga.runs.experiment import Cluster, Experiment, Training
from minga.runs.workload import Workload
from minga.strategies import AllReduce
from minga.testing.problems import blobs
from minga.testing.worlds import train_in_threads
from minga.training.recovery import recover
from minga.training.train_state import Beginning, build_train_state


def _spoilt() -> Workload:
    """One sample has a feature that is no number."""
    workload = blobs(batch_norm=True)
    points, classes = workload.train[:]
    points = points.clone()
    points[17, 2] = math.nan
    return dataclasses.replace(workload, train=TensorDataset(points, classes))


def _trained(strategy: str, nodes: int, workload: Workload, **training: object) -> list[Replica]:
    experiment = Experiment(
        workload="blobs",
        strategy=strategy,  # type: ignore[arg-type]
        cluster=Cluster(nodes=nodes),
        training=Training(**{"epochs": 2, "drop_last": True, **training}),  # type: ignore[arg-type]
    )
    return train_in_threads(experiment, workload)[:nodes]


def _norm(replica: Replica) -> nn.BatchNorm1d:
    return next(module for module in replica.model.modules() if isinstance(module, nn.BatchNorm1d))


@pytest.mark.parametrize("batch_norm", ["all_nodes", "each_node"])
@pytest.mark.parametrize(
    ("strategy", "nodes"), [("single", 1), ("ring", 3), ("ps:mode=sync", 2), ("local_sgd:period=4", 3)]
)
def test_inputs_that_are_no_numbers_leave_no_trace(strategy: str, nodes: int, batch_norm: str) -> None:
    replicas = _trained(strategy, nodes, _spoilt(), batch_norm=batch_norm)
    for replica in replicas:
        assert all(bool(torch.isfinite(tensor).all()) for tensor in replica.model.buffers())
        assert bool(torch.isfinite(replica.parameters).all())
    if nodes == 1 or (batch_norm == "all_nodes" and strategy != "local_sgd:period=4"):
        assert {int(_norm(replica).num_batches_tracked) for replica in replicas} == {replicas[0].step - 2}


def test_a_step_that_is_broken_off_and_made_again_counts_once() -> None:
    workload, strategy = blobs(batch_norm=True), AllReduce()
    train_state = build_train_state(Experiment(workload="blobs", training=Training(steps=9)), workload, 0)
    replica, alone = train_state.replica, ThreadWorld(1).transport(0)
    strategy.start(replica, alone)
    train_state.beginning = Beginning(0, train_state.order.copy(), 0, 1)

    def go_forward() -> list[Tensor]:
        replica.step += 1
        replica.statistics.keep()
        replica.compute_gradients(lambda: train_state.loss_of(workload.train[:8]))
        return [buffer.clone() for buffer in replica.model.buffers()]

    go_forward()
    replica.update()
    once = [buffer.clone() for buffer in replica.model.buffers()]
    assert not all(map(torch.equal, once, go_forward()))
    recover(train_state, strategy, alone)  # nobody has answered
    assert all(map(torch.equal, once, replica.model.buffers()))
    again = go_forward()
    replica.update()
    recover(train_state, strategy, alone)
    assert all(map(torch.equal, again, replica.model.buffers()))


def test_statistics_alone_are_taken_from_another_rank() -> None:
    """Frozen weights are the same everywhere and may be large; other buffers are their owners' business."""

    def body(comm: Transport) -> tuple[list[float], float, int]:
        model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2).requires_grad_(False))
        model.register_buffer("seen", torch.tensor(float(comm.rank)))
        for tensor in (*model[0].buffers(), *model[1].parameters()):
            tensor.fill_(comm.rank)
        take_statistics(model, comm, root=1)
        return model[0].running_var.tolist(), float(model.seen), int(model[1].weight[0, 0])  # type: ignore[union-attr, operator, arg-type]

    assert run_threads(3, body) == [([1.0, 1.0], float(rank), rank) for rank in range(3)]


@pytest.mark.parametrize(("strategy", "samples"), [("ring", 49), ("local_sgd:period=4", 51)])
def test_a_last_step_with_one_sample_to_normalise_over_names_the_remedy(strategy: str, samples: int) -> None:
    with pytest.raises(WorkloadError, match=r"more than 1 value .*; training\.drop_last=true leaves short last steps"):
        _trained(strategy, 3, blobs(samples=samples, batch_norm=True), drop_last=False, total_batch=24)


def test_a_model_without_such_layers_has_nothing_to_keep() -> None:
    statistics = BatchNormStatistics(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, track_running_stats=False)))
    statistics.keep()
    statistics.restore_if_non_finite()
    statistics.put_back()
