"""Experiments in Python and in TOML: the same, checked in the same way, with errors that name the place."""

from __future__ import annotations

import dataclasses
import math
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minga.base.config import FieldError, build, fields_of
from minga.codecs import CODECS
from minga.errors import ConfigError
from minga.runs.experiment import Cluster, Experiment, Training, load, with_overrides
from minga.strategies import Adaptive, AllReduce, ParameterServer, Single, Strategy

# --- what an experiment means ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "meant"), [(1, Single()), (2, Adaptive())])
def test_without_a_strategy_one_node_is_alone_and_several_adapt_to_their_links(nodes: int, meant: Strategy) -> None:
    experiment = Experiment(workload="digits", cluster=Cluster(nodes=nodes))
    assert experiment.strategy is None
    assert experiment.chosen_strategy == meant


@pytest.mark.parametrize(("strategy", "ranks"), [("ring", 3), ("ps", 4), ("ps:servers=2,placement=beside", 5)])
def test_servers_come_on_top_of_nodes(strategy: str, ranks: int) -> None:
    assert build(Experiment, {"workload": "digits", "strategy": strategy, "cluster": {"nodes": 3}}).ranks == ranks


def test_a_strategy_may_be_a_string_a_table_or_an_object() -> None:
    given = ["ps:mode=async", {"name": "ps", "mode": "async"}, ParameterServer(mode="async")]
    strategies = [build(Experiment, {"workload": "digits", "strategy": value}).strategy for value in given]
    assert strategies == [ParameterServer(mode="async")] * 3


@pytest.mark.parametrize(
    ("config", "values", "reason"),
    [
        (Cluster, {"nodes": 0}, "nodes: should be at least 1, not 0"),
        (Cluster, {"threads": 0}, "threads: should be at least 1, not 0"),
        (Cluster, {"timeout_seconds": 0}, "timeout_seconds: should be more than 0, not 0"),
        (Cluster, {"port": 65536}, "port: should be 0 to 65535, not 65536"),
        (Cluster, {"port": -1}, "port: should be 0 to 65535, not -1"),
        (Cluster, {"device": "tpu"}, "device: input should be 'cpu' or 'cuda', not 'tpu'"),
        (Cluster, {"nodes": 2, "speeds": [1]}, "speeds: should have one value for each of the 2 nodes, not 1"),
        (Cluster, {"nodes": 2, "speeds": [1, 0]}, "speeds: should be above 0 and at most 1, not [1.0, 0.0]"),
        (Cluster, {"speeds": [1.5]}, "speeds: should be above 0 and at most 1, not [1.5]"),
        (Training, {"epochs": 0}, "epochs: should be at least 1, not 0"),
        (Training, {"steps": 0}, "steps: should be at least 1, not 0"),
        (Training, {"batch": 0}, "batch: should be at least 1, not 0"),
        (Training, {"seed": -1}, "seed: should be at least 0, not -1"),
        (Training, {"evaluate_every": -1}, "evaluate_every: should be at least 0, not -1"),
        (Training, {"evaluate_every": math.inf}, "evaluate_every: should be at least 0, not inf"),
        (Training, {"learning_rate": 0}, "learning_rate: should be more than 0, not 0"),
        (Training, {"epochs": 2, "steps": 3}, "steps: give epochs (2) or steps (3), not both"),
    ],
)
def test_a_value_that_cant_work_is_refused(config: Any, values: dict[str, Any], reason: str) -> None:
    with pytest.raises(FieldError) as caught:
        config(**values)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("every", "steps"), [(0, []), (1, [10, 20, 30]), (2, [20]), (0.5, [5, 10, 15, 20, 25, 30]), (0.3, [3, 6, 9, 12])]
)
def test_evaluations_are_due_at_multiples_of_epochs(every: float, steps: list[int]) -> None:
    training = Training(evaluate_every=every)
    due = [step for step in range(1, 31) if training.evaluates_between((step - 1) / 10, step / 10)]
    assert due[: len(steps)] == steps
    assert len(due) == (int(3 / every + 1e-9) if every else 0)


@pytest.mark.parametrize("config", [Cluster, Training, Experiment])
def test_every_field_is_documented(config: Any) -> None:
    assert [name for name, _, _, description in fields_of(config) if not description] == []


# --- TOML and back -----------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]))  # TOML has no lone surrogates
CODEC = st.sampled_from([preset.cls(**preset.fields) for preset in CODECS.values()])


@st.composite
def clusters(draw: st.DrawFn, most: int = 6) -> Cluster:
    nodes = draw(st.integers(1, most))
    speed = st.floats(0, 1, exclude_min=True)
    return Cluster(
        nodes=nodes,
        device="cpu",
        threads=draw(st.integers(1, 64)),
        speeds=draw(st.just(()) | st.tuples(*[speed] * nodes)),
        timeout_seconds=draw(st.floats(0, exclude_min=True, allow_nan=False)),
        port=draw(st.integers(0, 65535)),
    )


@st.composite
def trainings(draw: st.DrawFn) -> Training:
    how_long = draw(st.sampled_from(["epochs", "steps", "default"]))
    positive = st.integers(1)
    return Training(
        epochs=draw(positive) if how_long == "epochs" else None,
        steps=draw(positive) if how_long == "steps" else None,
        batch=draw(st.none() | positive),
        seed=draw(st.integers(0, 2**31 - 1)),
        learning_rate=draw(st.none() | st.floats(0, exclude_min=True, allow_nan=False, allow_infinity=False)),
        evaluate_every=draw(st.floats(0, 1e9)),
    )


@st.composite
def strategies(draw: st.DrawFn, nodes: int) -> Strategy | None:
    codec = draw(CODEC)
    choices: list[Strategy | None] = [
        None,
        AllReduce(collective="two_level", group_size=draw(st.integers(0, 4)), codec=codec),
        AllReduce(collective="ring", bucket_bytes=draw(st.integers(1)), codec=codec),
        ParameterServer(mode="ssp", staleness=draw(st.none() | st.integers(0)), codec=codec),
        ParameterServer(mode="async", servers=nodes, placement="beside", codec=codec),
    ]
    return draw(st.sampled_from([*choices, Single(codec=codec)] if nodes == 1 else choices))


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    cluster = draw(clusters())
    return Experiment(
        workload=draw(TEXT),
        strategy=draw(strategies(cluster.nodes)),
        data=draw(st.none() | TEXT),
        cluster=cluster,
        training=draw(trainings()),
        runs=draw(TEXT),
    )


@given(experiment=experiments())
@settings(max_examples=100, deadline=None)
def test_an_experiment_comes_back_from_its_toml(experiment: Experiment) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "experiment.toml"
        path.write_text(experiment.to_toml(), encoding="utf-8")
        assert load(path) == experiment


def test_toml_has_the_strategy_as_people_type_it() -> None:
    experiment = Experiment(workload="digits", strategy=AllReduce(collective="ring"))
    assert tomllib.loads(experiment.to_toml())["strategy"] == "ring"


def test_the_example_in_the_documentation_loads(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(
        'workload = "digits"\nstrategy = "ps:mode=async"  # or a table\n[cluster]\nnodes = 4\n[training]\nepochs = 5\n'
    )
    assert load(path) == Experiment(
        workload="digits",
        strategy=ParameterServer(mode="async"),
        cluster=Cluster(nodes=4),
        training=Training(epochs=5),
    )


# --- errors name the place ---------------------------------------------------------------------------------------

UNKNOWN_KEY = """\
workload = "digits"

[cluster]
# four of them
node = 4
"""
UNKNOWN_TABLE = """\
workload = "digits"
[trainin]
epochs = 5
"""
UNKNOWN_OUTSIDE = """\
seed = 1
workload = "digits"
[training]
seed = 1
"""
WRONG_TYPE = """\
workload = "digits"
[training]
seed = 1
[cluster]
threads = 1
nodes = "four"
"""
WRONG_TYPE_DOTTED = """\
workload = "digits"
training.seed = 1
cluster.nodes = "four"
"""
WRONG_TYPE_INLINE = """\
workload = "digits"
cluster = { threads = 1, nodes = "four" }
"""
WRONG_TYPE_QUOTED = """\
workload = "digits"
[ "cluster" ]
"nodes" = "four"
"""
BOTH_LENGTHS = """\
workload = "digits"
[training]
epochs = 5
batch = 8
steps = 100
"""
SPEEDS_FOR_OTHERS = """\
workload = "digits"
[cluster]
nodes = 3
speeds = [
  1.0,
  0.5,
]
"""
SINGLE_ON_TWO = """\
workload = "digits"
[cluster]
nodes = 2
[strategy]
name = "single"
"""
TOO_MANY_SERVERS = """\
workload = "digits"
strategy = "ps:servers=3,placement=beside"
[cluster]
nodes = 2
"""
FIELDS_CONTRADICT = """\
workload = "digits"
[strategy]
name = "ps"
mode = "async"
staleness = 3
"""
UNKNOWN_STRATEGY = """\
workload = "digits"
strategy = "rign"
"""
UNKNOWN_CODEC = """\
workload = "digits"
[strategy]
name = "ring"
[strategy.codec]
name = "haf"
"""


@pytest.mark.parametrize(
    ("text", "line", "key", "reason"),
    [
        pytest.param(UNKNOWN_KEY, 5, "cluster.node", "Did you mean 'nodes'?", id="unknown key"),
        pytest.param(UNKNOWN_TABLE, 2, "trainin", "Did you mean 'training'?", id="unknown table"),
        pytest.param(UNKNOWN_OUTSIDE, 1, "seed", "unknown key 'seed'; known: check", id="key in the wrong table"),
        pytest.param(WRONG_TYPE, 6, "cluster.nodes", "valid integer", id="wrong type"),
        pytest.param(WRONG_TYPE_DOTTED, 3, "cluster.nodes", "not 'four'", id="wrong type, dotted key"),
        pytest.param(WRONG_TYPE_INLINE, 2, "cluster.nodes", "not 'four'", id="wrong type, inline table"),
        pytest.param(WRONG_TYPE_QUOTED, 3, "cluster.nodes", "not 'four'", id="wrong type, quoted key"),
        pytest.param(BOTH_LENGTHS, 5, "training.steps", "not both", id="epochs and steps"),
        pytest.param(SPEEDS_FOR_OTHERS, 4, "cluster.speeds", "each of the 3 nodes, not 2", id="too few speeds"),
        pytest.param(SINGLE_ON_TWO, 4, "strategy", "one node alone, not 2", id="single on two nodes"),
        pytest.param(TOO_MANY_SERVERS, 2, "strategy", "3 servers beside workers need at least 3", id="servers beside"),
        pytest.param(FIELDS_CONTRADICT, 5, "strategy.staleness", "is for mode=ssp", id="staleness of async"),
        pytest.param(UNKNOWN_STRATEGY, 2, "strategy", "Did you mean 'ring'?", id="unknown strategy"),
        pytest.param(UNKNOWN_CODEC, 4, "strategy.codec", "Did you mean 'half'?", id="unknown codec"),
    ],
)
def test_an_error_names_file_line_and_key(tmp_path: Path, text: str, line: int, key: str, reason: str) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}, line {line}: {key}: ")
    assert reason in str(caught.value)


def test_what_is_nowhere_has_no_line(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text("[cluster]\nnodes = 1\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value) == f"{path}: workload: experiment needs a value for 'workload'"


def test_text_that_is_no_toml_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_text('workload = "digits"\nnodes = = 3\n')
    with pytest.raises(ConfigError, match=r"experiment.toml: this is no TOML: .*line 2"):
        load(path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "experiment.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"experiment.toml is no text in UTF-8"):
        load(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"can't read .*/nowhere.toml: No such file"):
        load(tmp_path / "nowhere.toml")


# --- values from the command line --------------------------------------------------------------------------------


def test_an_override_replaces_a_value_and_leaves_its_neighbours() -> None:
    table = {"workload": "digits", "training": {"seed": 1, "batch": 8}}
    assert with_overrides(table, {"training.seed": 3, "workload": "mnist"}) == {
        "workload": "mnist",
        "training": {"seed": 3, "batch": 8},
    }


def test_an_override_makes_the_table_it_needs() -> None:
    assert with_overrides({"workload": "digits"}, {"cluster.nodes": 2, "cluster.port": 9}) == {
        "workload": "digits",
        "cluster": {"nodes": 2, "port": 9},
    }


def test_the_table_that_is_overridden_stays_as_it_was() -> None:
    table = {"workload": "digits", "training": {"seed": 1}}
    with_overrides(table, {"training.seed": 3, "cluster.nodes": 2})
    assert table == {"workload": "digits", "training": {"seed": 1}}


def test_overrides_reach_into_tables_of_tables() -> None:
    table = {"workload": "digits", "strategy": {"name": "ps"}}
    changed = with_overrides(table, {"strategy.codec.name": "half", "strategy.servers": "2"})
    assert changed["strategy"] == {"name": "ps", "codec": {"name": "half"}, "servers": "2"}


def test_overrides_are_text_that_becomes_the_type_of_its_field() -> None:
    overrides = {"cluster.nodes": "2", "cluster.speeds": ["1", "0.5"], "training.learning_rate": "1e-2"}
    experiment = build(Experiment, with_overrides({"workload": "digits"}, overrides))
    assert experiment.cluster == Cluster(nodes=2, speeds=(1.0, 0.5))
    assert experiment.training == Training(learning_rate=0.01)


def test_an_override_of_an_unknown_field_is_answered_with_a_suggestion() -> None:
    with pytest.raises(FieldError, match=r"^training.sed: unknown key 'sed'; known: .* Did you mean 'seed'\?"):
        build(Experiment, with_overrides({"workload": "digits"}, {"training.sed": "3"}))


def test_a_field_of_a_strategy_that_is_a_string_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^strategy.servers: strategy is 'ps', which has no fields to set"):
        with_overrides({"workload": "digits", "strategy": "ps"}, {"strategy.servers": 2})


@given(experiment=experiments(), seed=st.integers(0, 2**31 - 1))
@settings(max_examples=30, deadline=None)
def test_an_override_changes_nothing_else(experiment: Experiment, seed: int) -> None:
    changed = build(Experiment, with_overrides(tomllib.loads(experiment.to_toml()), {"training.seed": str(seed)}))
    training = dataclasses.replace(experiment.training, seed=seed)
    assert changed == dataclasses.replace(experiment, training=training)
