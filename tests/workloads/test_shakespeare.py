"""The language model: its data, its loss, its accuracy, and that it learns on several nodes what one learns."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

import minga
from minga.comm.threads import ThreadWorld
from minga.errors import DataError
from minga.metrics.evaluation import evaluate
from minga.model.replica import Replica
from minga.runs.workload import Workload, load_workload

SENTENCE = "the quick brown fox jumps over the lazy dog.\n"


def write(folder: Path, text: str) -> Path:
    (folder / "text").mkdir()
    (folder / "text" / "tinyshakespeare.txt").write_text(text)
    return folder


@pytest.fixture
def workload(tmp_path: Path) -> Workload:
    return load_workload("shakespeare", str(write(tmp_path, SENTENCE * 60)))


def tensors(dataset: object) -> tuple[torch.Tensor, ...]:
    assert isinstance(dataset, TensorDataset)
    return dataset.tensors


def test_nine_tenths_are_trained_and_the_last_is_for_tests(workload: Workload) -> None:
    (inputs, targets), (tested, told) = tensors(workload.train), tensors(workload.test)
    length = 60 * len(SENTENCE)
    cut = int(0.9 * length)
    assert inputs.shape == targets.shape == ((cut - 1) // 64, 64)
    assert tested.shape == told.shape == ((length - cut - 1) // 64, 64)
    characters = sorted(set(SENTENCE))
    assert "".join(characters[number] for number in inputs[:2].flatten()) == (SENTENCE * 60)[:128]
    assert "".join(characters[number] for number in told[0]) == (SENTENCE * 60)[cut + 1 : cut + 65]


def test_the_model_knows_as_many_characters_as_the_text_has(workload: Workload) -> None:
    assert workload.model()(torch.zeros(1, 64, dtype=torch.int64)).shape == (1, 64, len(set(SENTENCE)))


def test_the_loss_is_the_mean_over_all_characters(workload: Workload) -> None:
    outputs, targets = torch.randn(2, 3, 5), torch.tensor([[0, 1, 2], [3, 4, 0]])
    each = [-outputs[i, j].log_softmax(0)[targets[i, j]] for i in range(2) for j in range(3)]
    torch.testing.assert_close(workload.loss(outputs, targets), torch.stack(each).mean())


def test_accuracy_is_the_part_of_characters_that_is_told_right(workload: Workload) -> None:
    outputs = torch.eye(5)[torch.tensor([[0, 1, 2], [3, 3, 3]])]
    found = workload.metrics["accuracy"](outputs, torch.tensor([[0, 1, 0], [1, 1, 3]]))
    torch.testing.assert_close(found, torch.tensor([2 / 3, 1 / 3], dtype=torch.float64))


def test_the_evaluation_counts_characters(workload: Workload) -> None:
    torch.manual_seed(0)
    model = workload.model()
    replica = Replica(model, workload.optimizer(model.parameters()))
    found = evaluate(workload, replica, ThreadWorld(1).transport(0), torch.device("cpu"))
    inputs, targets = tensors(workload.test)
    with torch.no_grad():
        right = (model(inputs).argmax(dim=-1) == targets).double().mean()
    assert found.numbers["accuracy"] == pytest.approx(float(right))


def test_without_the_file_the_error_says_where_it_goes(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    with pytest.raises(DataError, match=rf"{tmp_path / 'text'} lacks tinyshakespeare.txt .* --data DIR"):
        load_workload("shakespeare", str(tmp_path))


def test_a_text_that_is_too_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has 90 characters, .* piece of 64; fetch the file again"):
        load_workload("shakespeare", str(write(tmp_path, SENTENCE * 2)))


@pytest.mark.slow
def test_two_nodes_learn_what_one_learns(tmp_path: Path) -> None:
    data = str(write(tmp_path, SENTENCE * 60))

    def loss(strategy: str, nodes: int) -> float:
        experiment = minga.Experiment(
            workload="shakespeare",
            data=data,
            strategy=strategy,  # type: ignore[arg-type]
            cluster=minga.Cluster(nodes=nodes),
            training=minga.Training(epochs=12, total_batch=8, evaluate_every=0),
            runs=str(tmp_path / "runs"),
        )
        found = minga.run(experiment)
        assert found.accuracy is not None and found.loss is not None
        assert found.accuracy > 0.3  # the most frequent character is a fifth of the text
        return found.loss

    assert loss("ring", 2) == pytest.approx(loss("single", 1), rel=0.05)
