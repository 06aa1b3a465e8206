"""From a grid and environments to experiments."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from minga.base.config import FieldError
from minga.report.dataset.settings import flatten
from minga.runs.network import Network
from minga.strategies import AllReduce, ParameterServer, Single
from minga.study.cells import Batch, Cell, Environment, make_cells, overlay

DIGITS = {"workload": "digits"}
TOTAL = Batch(policy="total", size=96)


def cells(grid: dict[str, list[Any]], batch: Batch | None = TOTAL, **experiment: Any) -> list[Cell]:
    return make_cells(DIGITS | experiment, batch, grid, ())


def test_every_combination_is_a_cell() -> None:
    made = cells({"cluster.nodes": [2, 4], "cluster.network.bandwidth": ["10mbit", "1gbit"], "training.seed": [7]})
    assert [cell.label for cell in made] == [
        "2 nodes, 10mbit, seed 7",
        "2 nodes, 1gbit, seed 7",
        "4 nodes, 10mbit, seed 7",
        "4 nodes, 1gbit, seed 7",
    ]
    last = made[-1].experiment
    assert last.cluster.network is not None
    assert (last.cluster.nodes, last.cluster.network.bandwidth, last.training.seed) == (4, 1e9, 7)
    assert made[-1].values == {"cluster.nodes": 4, "cluster.network.bandwidth": "1gbit", "training.seed": 7}


def test_a_codec_goes_into_whatever_strategy_there_is() -> None:
    made = cells({"cluster.nodes": [2], "strategy": ["ring", "ps:mode=async"], "codec": ["none", "half"]})
    strategies = [cell.experiment.strategy for cell in made]
    assert [type(strategy) for strategy in strategies] == [AllReduce, AllReduce, ParameterServer, ParameterServer]
    assert strategies[0] != strategies[1]
    assert dataclasses.replace(strategies[3], codec=strategies[2].codec) == strategies[2]  # type: ignore[union-attr,type-var]


def test_one_node_is_run_once_for_all_networks_strategies_codecs_and_policies() -> None:
    made = cells(
        {
            "cluster.nodes": [1, 2],
            "cluster.network.bandwidth": ["10mbit", "1gbit"],
            "strategy": ["ring", "ps"],
            "codec": ["none", "half"],
            "batch.policy": ["per_node", "total"],
        }
    )
    alone = [cell for cell in made if cell.experiment.cluster.nodes == 1]
    assert [(cell.label, cell.values) for cell in alone] == [("1 node", {"cluster.nodes": 1})]
    assert alone[0].experiment.strategy == Single()
    assert alone[0].experiment.cluster.network == Network()  # a host of its own, as the others have, without limits
    assert alone[0].experiment.training.batch == 96
    assert len(made) == 1 + 16


def test_one_node_still_has_the_axes_that_matter_to_it() -> None:
    made = cells({"cluster.nodes": [1], "strategy": ["ring", "ps"], "batch.size": [8, 16], "training.seed": [0, 1]})
    assert [cell.label for cell in made] == [
        "1 node, batch size 8, seed 0",
        "1 node, batch size 8, seed 1",
        "1 node, batch size 16, seed 0",
        "1 node, batch size 16, seed 1",
    ]


def test_environments_are_taken_literally() -> None:
    named = [
        Environment(label="alone", overrides={"strategy": "single"}),
        Environment(label="distributed path", overrides={"strategy": "native"}),
    ]
    made = make_cells(DIGITS, TOTAL, {}, named)
    assert [cell.environment for cell in made] == ["alone", "distributed path"]
    assert [type(cell.experiment.strategy) for cell in made] == [Single, AllReduce]
    assert made[0].experiment.training.total_batch == 96


def test_grid_and_environments_stand_side_by_side() -> None:
    uneven = Environment(label="uneven", overrides={"cluster.nodes": 2, "cluster.cpu": [1, 0.5]})
    made = make_cells(DIGITS, TOTAL, {"cluster.nodes": [1, 2]}, [uneven])
    assert [(cell.label, cell.environment) for cell in made] == [
        ("1 node", None),
        ("2 nodes", None),
        ("uneven", "uneven"),
    ]


@pytest.mark.parametrize(
    ("policy", "batch", "total"), [("per_node", 96, None), ("total", None, 96)], ids=["per_node", "total"]
)
@pytest.mark.parametrize("rule", ["constant", "linear", "sqrt"])
def test_a_batch_policy_is_what_training_understands(policy: Any, batch: Any, total: Any, rule: Any) -> None:
    made = cells({"cluster.nodes": [2]}, Batch(policy=policy, size=96, learning_rate=rule))
    training = made[0].experiment.training
    assert (training.batch, training.total_batch, training.learning_rate_rule) == (batch, total, rule)


def test_a_batch_policy_may_be_an_axis() -> None:
    made = cells({"cluster.nodes": [2], "batch.policy": ["per_node", "total"]})
    assert [cell.experiment.training.batch for cell in made] == [96, None]


def test_identity_is_that_of_the_experiment_and_not_of_its_place() -> None:
    two = cells({"cluster.nodes": [2]})[0]
    assert two.identity == cells({"cluster.nodes": [4, 2]})[1].identity
    assert two.identity == cells({"cluster.nodes": [2], "strategy": ["adaptive"]})[0].identity  # the default, in words
    assert two.identity != cells({"cluster.nodes": [2], "training.seed": [1]})[0].identity
    assert two.identity != cells({"cluster.nodes": [2]}, Batch(policy="per_node", size=96))[0].identity
    moved = dataclasses.replace(two, experiment=dataclasses.replace(two.experiment, runs="/elsewhere"))
    assert moved.identity == two.identity


def test_each_repetition_has_its_own_seed(tmp_path: Path) -> None:
    cell = cells({"cluster.nodes": [2], "training.seed": [5]})[0]
    again = [cell.for_repetition(repetition, tmp_path) for repetition in range(3)]
    assert [experiment.training.seed for experiment in again] == [5, 6, 7]
    assert {experiment.runs for experiment in again} == {str(tmp_path)}


def test_paths_may_be_dotted_or_nested() -> None:
    table = {"cluster": {"nodes": 2, "network": {"delay": "5ms"}}, "training.seed": 1, "strategy": {"name": "ps"}}
    assert flatten(table) == {
        "cluster.nodes": 2,
        "cluster.network.delay": "5ms",
        "training.seed": 1,
        "strategy": {"name": "ps"},
    }


def test_steps_stand_instead_of_epochs() -> None:
    assert overlay({"training": {"epochs": 2}}, {"training.steps": 5}) == {"training": {"steps": 5}}
    with pytest.raises(FieldError, match="has no fields to set"):
        overlay({"strategy": "ring"}, {"strategy.bucket_bytes": 5})
