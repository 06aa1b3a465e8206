"""That the parity tests can fail: each mistake here is one that they must notice."""

from __future__ import annotations

import pytest
import torch

import minga.comm.collectives
import minga.strategies.all_reduce as module
from minga import Cluster, Experiment, Training, Transport
from minga.base.config import FieldError
from minga.data.order import Order, Share
from minga.strategies import AllReduce
from minga.testing import train_in_threads
from minga.testing.problems import blobs
from minga.testing.strategies import train_alone


def difference(strategy: AllReduce) -> float:
    workload = blobs()
    experiment = Experiment(
        workload="blobs", strategy=strategy, cluster=Cluster(nodes=4), training=Training(steps=20, batch=8)
    )
    together = train_in_threads(experiment, workload)[0].parameters
    return float((together - train_alone(workload, steps=20, batch=32).parameters).abs().max())


def test_the_real_thing_is_exact() -> None:
    assert difference(AllReduce(collective="ring")) < 1e-12


def test_without_the_divisor_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_sum(comm: Transport, vector: torch.Tensor, collective: object, codec: object, stream: object) -> None:
        minga.comm.collectives.ring(comm, vector)

    monkeypatch.setattr(module, "average_in_place", only_sum)
    assert difference(AllReduce(collective="ring")) > 1e-3


def test_without_the_weights_of_a_short_batch_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Order.take

    def unweighted(self: Order, rank: int, workers: int, batch: int, total: int | None = None) -> Share:
        share = take(self, rank, workers, batch, total)
        return Share(share.stretches, share.indices, 1.0, share.total)

    monkeypatch.setattr(Order, "take", unweighted)
    assert difference(AllReduce(collective="ring")) > 1e-6


def test_16_bit_floats_halve_the_bytes_and_stay_close() -> None:
    experiment = Experiment(
        workload="blobs", strategy="ring:codec=half", cluster=Cluster(nodes=4), training=Training(steps=20, batch=8)
    )
    half = train_in_threads(experiment, blobs())[0].parameters
    exact = train_alone(blobs(), steps=20, batch=32).parameters
    assert 0 < float((half - exact).abs().max()) < 0.05


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bucket_bytes": 0}, "bucket_bytes: should be at least 1"),
        ({"group_size": 2}, "group_size: is for collective=two_level"),
        ({"collective": "two_level", "group_size": -1}, "group_size: should be 0 or more"),
    ],
)
def test_impossible_settings(fields: dict[str, object], message: str) -> None:
    with pytest.raises(FieldError, match=message):
        AllReduce(**fields)  # type: ignore[arg-type]
