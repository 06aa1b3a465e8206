"""Studies in Python and TOML: what they mean, and what is wrong with them, before anything runs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from minga.base.config import FieldError, build, fields_of
from minga.errors import ConfigError
from minga.study import Batch, Environment, Study, load_study, shipped_studies


def study(**changes: Any) -> Study:
    plain: dict[str, Any] = {
        "name": "nodes",
        "question": "Do more nodes help?",
        "experiment": {"workload": "digits"},
        "batch": {"policy": "total", "size": 96},
        "grid": {"cluster": {"nodes": [1, 2]}},
    }
    return build(Study, plain | changes)


# --- order -------------------------------------------------------------------------------------------------------


def test_repetitions_are_interleaved_and_shuffled() -> None:
    jobs = study(grid={"cluster.nodes": list(range(1, 9))}, repetitions=3).jobs
    assert [job.repetition for job in jobs] == [0] * 8 + [1] * 8 + [2] * 8
    orders = [[job.cell.label for job in jobs[start : start + 8]] for start in (0, 8, 16)]
    assert len({tuple(order) for order in orders}) == 3
    assert len({tuple(sorted(order)) for order in orders}) == 1


def test_the_order_is_the_same_every_time_and_the_seed_decides_it() -> None:
    grid = {"cluster.nodes": list(range(1, 9))}
    labels = [[str(job) for job in study(grid=grid, order_seed=seed).jobs] for seed in (0, 0, 1)]
    assert labels[0] == labels[1] != labels[2]


# --- pretraining -------------------------------------------------------------------------------------------------


def test_other_pretraining_makes_other_cells() -> None:
    def identities(**changes: Any) -> list[str]:
        return [cell.identity for cell in study(**changes).cells]

    once, again = ({"pretraining": {"training": {"steps": 5}}} for _ in range(2))
    assert identities(**once) == identities(**again)
    assert not {*identities(**once)} & {*identities()}
    assert not {*identities(**once)} & {*identities(pretraining={"training": {"steps": 6}})}
    assert not {*identities(**once)} & {*identities(**once, batch={"policy": "total", "size": 48})}


def test_pretraining_differs_from_the_experiment_in_what_it_says_and_reads_back() -> None:
    made = study(experiment={"workload": "digits", "training": {"epochs": 9}}, pretraining={"training": {"steps": 5}})
    assert made.pretrained is not None
    training = made.pretrained.experiment.training
    assert (training.steps, training.epochs, training.total_batch) == (5, None, 96)
    assert build(Study, tomllib.loads(made.to_toml())) == made
    quick = study(pretraining={"training": {"steps": 5}}, quick={"pretraining": {"training": {"steps": 2}}}).quickened()
    assert quick.pretrained is not None and quick.pretrained.experiment.training.steps == 2


def test_weights_come_from_one_place() -> None:
    from_file = {"workload": "digits", "training": {"start_from": "mine.safetensors"}}
    with pytest.raises(FieldError, match="says already where weights come from"):
        study(experiment=from_file, pretraining={"training": {"steps": 5}})


# --- quick -------------------------------------------------------------------------------------------------------


def test_quick_changes_what_it_says_and_nothing_else() -> None:
    long = study(
        experiment={"workload": "digits", "training": {"epochs": 9, "seed": 4}},
        grid={"cluster.nodes": [1, 2], "strategy": ["ring", "tree"]},
        repetitions=7,
        quick={
            "repetitions": 1,
            "experiment": {"training": {"steps": 3}},
            "grid": {"strategy": ["mesh"]},
            "batch": {"size": 8},
        },
    )
    quick = long.quickened()
    assert (quick.name, quick.title, quick.repetitions) == ("nodes-quick", "nodes (quick)", 1)
    assert quick.grid == {"cluster.nodes": [1, 2], "strategy": ["mesh"]}
    assert quick.batch == Batch(policy="total", size=8)
    assert quick.experiment["training"] == {"steps": 3, "seed": 4}  # steps stand instead of epochs
    assert long.experiment["training"] == {"epochs": 9, "seed": 4}


def test_quick_may_replace_environments() -> None:
    named = [{"label": "a", "cluster.nodes": 1}, {"label": "b", "cluster.nodes": 2}]
    both = study(grid={}, environment=named, quick={"environment": named[1:]})
    assert [cell.label for cell in both.cells] == ["a", "b"]
    assert [cell.label for cell in both.quickened().cells] == ["b"]


# --- TOML --------------------------------------------------------------------------------------------------------


def test_toml_reads_back_to_an_equal_study() -> None:
    original = study(
        environment=[Environment(label="pair", overrides={"cluster.nodes": 2, "batch.policy": "per_node"})],
        grid={"strategy": ["ring", {"name": "ps", "mode": "async"}], "cluster.nodes": [2, 3]},
        quick={"repetitions": 1},
        cool_down_seconds=0.5,
    )
    again = build(Study, tomllib.loads(original.to_toml()))
    assert again == original
    assert [cell.identity for cell in again.cells] == [cell.identity for cell in original.cells]


@pytest.mark.parametrize("config", [Study, Batch, Environment])
def test_every_field_is_documented(config: Any) -> None:
    assert [name for name, _, _, description in fields_of(config) if not description] == []


# --- errors ------------------------------------------------------------------------------------------------------

HEAD = 'name = "mine"\nquestion = "?"\n'
BATCH = '[batch]\npolicy = "total"\nsize = 8\n'
DIGITS = '[experiment]\nworkload = "digits"\n'

WRONG = {
    "no TOML": ("name = \n", ["no TOML", "line 1"]),
    "unknown key": (HEAD + "repetition = 3\n", ["line 3", "unknown key 'repetition'", "Did you mean 'repetitions'?"]),
    "name": ('name = "My study"\nquestion = "?"\n' + DIGITS + BATCH, ["line 1", "small letters", "'My study'"]),
    "repetitions": (HEAD + "repetitions = 0\n" + DIGITS + BATCH, ["line 3", "repetitions: should be at least 1"]),
    "no batch": (HEAD + DIGITS, ["a study says what a batch is", 'policy = "total"', "per_node"]),
    "batch twice": (
        HEAD + DIGITS + "training.batch = 3\n" + BATCH,
        ["line 5", "training.batch: is said by [batch] already"],
    ),
    "policy": (HEAD + DIGITS + '[batch]\npolicy = "each"\nsize = 8\n', ["line 6", "'per_node' or 'total'", "'each'"]),
    "axis is no list": (HEAD + DIGITS + BATCH + "[grid]\ncluster.nodes = 4\n", ["line 9", "should be a list", "not 4"]),
    "axis has a value twice": (HEAD + DIGITS + BATCH + "[grid]\ncluster.nodes = [2, 2]\n", ["line 9", "has 2 twice"]),
    "axis of nothing": (
        HEAD + DIGITS + BATCH + "[grid]\ncluster.nodes = [1, 2]\ncluster.bandwidth = [3]\n",
        ["line 10", "the cell '1 node, bandwidth 3' can't work", "unknown key 'bandwidth'"],
    ),
    "impossible cell": (
        HEAD + DIGITS + BATCH + '[grid]\ncluster.nodes = [1, 2]\nstrategy = ["ring", "single"]\n',
        ["line 10", "the cell '2 nodes, single' can't work", "'single' is one node alone, not 2"],
    ),
    "impossible codec": (
        HEAD + DIGITS + BATCH + '[grid]\ncluster.nodes = [2]\ncodec = ["haf"]\n',
        ["line 10", "unknown codec 'haf'", "Did you mean 'half'?"],
    ),
    "experiment": (HEAD + DIGITS + "training.sed = 3\n" + BATCH, ["line 5", "unknown key 'sed'"]),
    "runs": (HEAD + DIGITS + 'runs = "here"\n' + BATCH, ["line 5", "runs go into the study's own directory"]),
    "environment": (
        HEAD + DIGITS + BATCH + '[[environment]]\nlabel = "a"\n\n[[environment]]\nlabel = "b"\ncluster.nodes = 0\n',
        ["line 13", "the cell 'b' can't work", "nodes: should be at least 1"],
    ),
    "environment without label": (
        HEAD + DIGITS + BATCH + '[[environment]]\nlabel = "a"\n[[environment]]\ncluster.nodes = 2\n',
        ["line 10", "environment needs a value for 'label'"],
    ),
    "the same environment": (
        HEAD + DIGITS + BATCH + '[[environment]]\nlabel = "a"\n[[environment]]\nlabel = "b"\n',
        ["line 10", "'b' is the same experiment as 'a'"],
    ),
    "quick": (HEAD + DIGITS + BATCH + "[quick.batch]\nsize = 0\n", ["line 9", "size: should be at least 1, not 0"]),
    "quick key": (HEAD + DIGITS + BATCH + "[quick]\nrepeat = 1\n", ["line 9", "unknown key 'repeat'"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_name_file_line_and_reason(name: str, tmp_path: Path) -> None:
    text, words = WRONG[name]
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_study(file)
    assert not isinstance(caught.value, FieldError)
    for word in [str(file), *words]:
        assert word in str(caught.value)


def test_an_unknown_study_is_told_with_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown study 'quitto'; known: .*quito.*Did you mean 'quito'\?.*file.toml"):
        load_study("quitto")
    with pytest.raises(ConfigError, match="can't read"):
        load_study(tmp_path / "none.toml")


# --- what is shipped ---------------------------------------------------------------------------------------------


def test_shipped_studies_are_those_of_the_theses_and_three_of_papers() -> None:
    theses, papers = ["buenos-aires", "cantabria", "captions", "cifar10-vgg", "quito"], ["diloco", "power-sgd", "top-k"]
    assert list(shipped_studies()) == sorted([*theses, *papers])


@pytest.mark.parametrize("name", list(shipped_studies()))
def test_shipped_studies_say_what_they_ask_and_have_a_quick_version(name: str) -> None:
    shipped, quick = load_study(name), load_study(name, quick=True)
    assert shipped.name == name
    assert shipped.question.endswith("?")
    assert len(quick.jobs) < len(shipped.jobs)
    assert {cell.experiment.workload for cell in quick.cells} == {"digits"}  # runs without data


def test_quito_runs_its_one_node_once_and_divides_one_batch() -> None:
    cells = load_study("quito").cells
    assert len(cells) == 10
    assert [cell.label for cell in cells if cell.experiment.cluster.nodes == 1] == ["1 node"]
    shares = {(cell.experiment.training.total_batch, cell.experiment.training.batch) for cell in cells[1:]}
    assert shares == {(96, None)}


def test_cantabria_shows_both_batch_policies() -> None:
    cells = {cell.label: cell.experiment for cell in load_study("cantabria").cells}
    assert cells["two nodes"].training.total_batch == 128
    assert cells["two nodes, 128 each"].training.batch == 128
    assert type(cells["one node, distributed path"].strategy) is not type(cells["one node"].strategy)


def test_buenos_aires_has_the_codec_in_every_strategy() -> None:
    cells = load_study("buenos-aires").cells
    assert len(cells) == 21
    for cell in cells[1:]:
        assert cell.experiment.strategy is not None
        assert "half" in str(cell.experiment.strategy.codec).lower()


def test_replications_compare_equal_steps_and_equal_batches() -> None:
    for name in ("power-sgd", "diloco", "top-k"):
        trainings = {cell.experiment.training for cell in load_study(name).cells}
        assert len(trainings) == 1, name
        assert next(iter(trainings)).steps, name


# --- the page about studies --------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "studies.md"


def test_the_example_of_the_page_is_a_study() -> None:
    block = re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    example = build(Study, tomllib.loads(block[1]))
    assert len(example.cells) == 1 + 2 * 3 * 2
    assert {cell.experiment.cluster.nodes for cell in example.quickened().cells} == {1, 2}


def test_the_page_has_every_field_and_every_shipped_question() -> None:
    page = PAGE.read_text()
    assert [name for name, *_ in fields_of(Study) if f"`{name}`" not in page and f"[{name}]" not in page] == []
    assert [name for name in shipped_studies() if load_study(name).question not in page] == []
