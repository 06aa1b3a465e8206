"""Workloads that are not classification learn what they should, on one node and on several alike."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import minga
from minga.comm.threads import ThreadWorld
from minga.metrics.evaluation import evaluate
from minga.model.replica import Replica
from minga.runs.workload import load_workload
from minga.testing.worlds import train_in_threads
from minga.training.checkpoints.files import best_of, list_checkpoints
from minga.workloads.tasks import LABELS, number_in_words


@pytest.mark.parametrize(
    ("name", "metric", "lower", "expected", "epochs"),
    [
        ("friedman", "R2", False, 0.7, 10),
        ("digits-labels", "F1", False, 0.9, 3),
        ("digits-autoencoder", "MSE", True, 0.035, 8),
        ("counting", "perplexity", True, 1.8, 4),
    ],
)
def test_two_nodes_learn_it(name: str, metric: str, lower: bool, expected: float, epochs: int) -> None:
    workload = load_workload(name, None)
    assert workload.main_metric == metric and (metric in workload.lower_is_better) == lower
    training = minga.Training(epochs=epochs, total_batch=workload.batch, evaluate_every=0)
    experiment = minga.Experiment(
        workload=name,
        strategy="ring",  # type: ignore[arg-type]
        cluster=minga.Cluster(nodes=2),
        training=training,
    )
    replica = train_in_threads(experiment, workload)[0]
    found = evaluate(workload, replica, ThreadWorld(1).transport(0), torch.device("cpu")).numbers[metric]
    assert found < expected if lower else found > expected


def test_untrained_models_are_worse_than_that() -> None:
    """So that the limits above mean something."""
    for name, metric, lower, expected in [
        ("friedman", "R2", False, 0.5),
        ("digits-labels", "F1", False, 0.7),
        ("digits-autoencoder", "MSE", True, 0.1),
        ("counting", "perplexity", True, 10),
    ]:
        workload = load_workload(name, None)
        torch.manual_seed(0)
        model = workload.model()
        replica = Replica(model, workload.optimizer(model.parameters()))
        found = evaluate(workload, replica, ThreadWorld(1).transport(0), torch.device("cpu")).numbers[metric]
        assert found > expected if lower else found < expected


def test_labels_are_true_of_the_digits() -> None:
    pictures, truth = load_workload("digits-labels", None).train.tensors  # type: ignore[attr-defined]
    assert pictures.shape[1:] == (1, 8, 8) and truth.shape == (len(pictures), len(LABELS))
    # The first picture of the data is a 0: even, with a loop.
    assert truth[0].tolist() == [1, 0, 0, 1, 0]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (20, "twenty"),
        (47, "forty-seven"),
        (100, "one hundred"),
        (999, "nine hundred and ninety-nine"),
        (1000, "one thousand"),
        (1005, "one thousand and five"),
        (21_340, "twenty-one thousand three hundred and forty"),
    ],
)
def test_numbers_in_words(number: int, words: str) -> None:
    assert number_in_words(number) == words


def test_a_real_run_keeps_the_checkpoint_with_the_least_error(tmp_path: Path) -> None:
    """With a rate that grows the error after the first epochs, the best is not the last."""
    file = tmp_path / "worse.py"
    file.write_text(
        "import dataclasses\n"
        "from minga.workloads.tasks import digits_autoencoder\n"
        "plain = digits_autoencoder()\n"
        "workload = dataclasses.replace(plain, schedule=lambda progress: 1.0 if progress < 0.5 else 40.0)\n"
    )
    experiment = minga.Experiment(
        workload=f"{file}:workload",
        training=minga.Training(epochs=6),
        runs=str(tmp_path / "runs"),
    )
    summary = minga.run(experiment)
    assert summary.metric == "MSE" and summary.accuracy is None
    best = best_of(list_checkpoints(Path(summary.run)))
    assert best is not None
    manifest = best.manifest(0)
    assert manifest.metric == "MSE" and not manifest.higher_is_better
    assert manifest.value is not None and manifest.value < 0.8 * summary.metrics["MSE"]
