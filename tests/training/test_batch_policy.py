"""Fixed total batch or fixed batch of each node, and the learning rate beside it."""

from __future__ import annotations

import math

import pytest

from minga import Cluster, Experiment, Training
from minga.data.order import Order
from minga.errors import ConfigError
from minga.testing import train_in_threads
from minga.testing.problems import blobs
from minga.testing.strategies import train_alone
from minga.training.train_state import build_train_state


@pytest.mark.parametrize("strategy", ["ring", "ps:mode=sync"])
@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_a_total_batch_is_the_same_training_on_any_number_of_nodes(strategy: str, nodes: int) -> None:
    workload = blobs()
    experiment = Experiment(
        workload="blobs",
        strategy=strategy,
        cluster=Cluster(nodes=nodes),
        training=Training(epochs=2, total_batch=22),  # neither divides by 3 nor by 4
    )
    together = train_in_threads(experiment, workload)[0].parameters
    alone = train_alone(workload, epochs=2, batch=22).parameters
    assert float((together - alone).abs().max()) < 1e-12


def test_a_total_batch_is_shared_as_evenly_as_can_be() -> None:
    shares = [Order(100, 0).take(rank, 4, 99, total=10) for rank in range(4)]
    assert [len(share.indices) for share in shares] == [2, 3, 2, 3]
    assert {share.total for share in shares} == {10}
    assert len({int(index) for share in shares for index in share.indices}) == 10


@pytest.mark.parametrize(
    ("rule", "policy", "factor"),
    [
        ("constant", {"batch": 8}, 1.0),
        ("linear", {"batch": 8}, 4.0),
        ("sqrt", {"batch": 8}, 2.0),
        ("linear", {"total_batch": 32}, 1.0),  # one node alone would take the same
        ("sqrt", {"total_batch": 32}, 1.0),
    ],
)
@pytest.mark.parametrize("rate", [None, 0.25])
def test_the_learning_rate_grows_with_the_batch_of_all_nodes(
    rule: str, policy: dict[str, int], factor: float, rate: float | None
) -> None:
    def rates(nodes: int) -> list[float]:
        training = Training(learning_rate_rule=rule, learning_rate=rate, **policy)
        experiment = Experiment(workload="blobs", cluster=Cluster(nodes=nodes), training=training)
        return build_train_state(experiment, blobs(), 0).base_learning_rates

    assert all(math.isclose(many, factor * one) for one, many in zip(rates(1), rates(4), strict=True))


def test_one_policy_at_a_time() -> None:
    with pytest.raises(ConfigError, match=r"batch \(8, of each node\) or total_batch \(32\), not both"):
        Training(batch=8, total_batch=32)
