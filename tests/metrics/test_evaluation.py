"""An evaluation by several ranks equals that by one, whatever their parts of the test set are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from minga.comm.threads import run_threads
from minga.errors import WorkloadError
from minga.metrics import F1, R2, AreaUnderROC, Bleu, ConfusionMatrix, MeanSquaredError, Perplexity, TopKAccuracy
from minga.metrics.evaluation import Findings, evaluate
from minga.model.replica import Replica
from minga.runs.workload import FurtherTest, Workload, correct
from minga.testing.worlds import run_gloo_threads, run_tcp_threads

CPU = torch.device("cpu")


def classes_workload(samples: int = 103, **changed: Any) -> Workload:
    """In float64, so that differences between ways to count are not hidden behind those of batches."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(samples, 6, generator=generator, dtype=torch.float64)
    data = TensorDataset(inputs, torch.randint(3, (samples,), generator=generator))
    settings: dict[str, Any] = {
        "model": lambda: nn.Linear(6, 3).double(),
        "metrics": {
            "accuracy": correct,
            "f1": F1(),
            "auc": AreaUnderROC(),
            "top-2 accuracy": TopKAccuracy(k=2),
            "perplexity": Perplexity(),
            "confusion": ConfusionMatrix(),
        },
    }
    return Workload(name="classes", train=data, test=data, test_batch=10, **settings | changed)


def numbers_workload() -> Workload:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(47, 6, generator=generator, dtype=torch.float64)
    data = TensorDataset(inputs, torch.randn(47, 2, generator=generator, dtype=torch.float64) + 1000)
    return Workload(
        name="numbers",
        model=lambda: nn.Linear(6, 2).double(),
        train=data,
        test=data,
        loss=nn.functional.mse_loss,
        metrics={"r2": R2(), "mse": MeanSquaredError()},
        test_batch=4,
    )


def with_sentences() -> Workload:
    """What is generated is looked at beside what is predicted."""
    generator = torch.Generator().manual_seed(0)
    references = torch.randint(1, 5, (11, 2, 8), generator=generator)
    sentences = TensorDataset(torch.randn(11, 6, generator=generator, dtype=torch.float64), references)

    def generate(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        inputs, several = batch
        chosen = (model(inputs) * 3).round().long() % 5
        return torch.cat([chosen, several[:, 0, 3:]], dim=1), several

    further = FurtherTest(
        data=sentences, predict=generate, batch=3, metrics={f"bleu-{n}": Bleu(order=n) for n in (1, 2)}
    )
    return classes_workload(further_tests=(further,), main="bleu-2")


Run = Callable[..., list[Any]]


def found_by(ranks: int, make: Callable[[], Workload], run_on: Run = run_threads) -> list[Findings]:
    workload = make()
    replicas = []
    for _ in range(ranks):  # one after the other: threads share torch's random numbers
        torch.manual_seed(0)
        model = workload.model()
        replicas.append(Replica(model, torch.optim.SGD(model.parameters(), lr=0.1)))
    return run_on(ranks, lambda comm: evaluate(workload, replicas[comm.rank], comm, CPU), timeout_seconds=30)


@pytest.mark.parametrize("make", [classes_workload, numbers_workload, with_sentences])
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_several_ranks_find_what_one_finds(ranks: int, make: Callable[[], Workload]) -> None:
    (alone,) = found_by(1, make)
    together = found_by(ranks, make)
    for found in together:
        assert found == together[0]  # the same bits on all ranks
        assert found.numbers == pytest.approx(alone.numbers, rel=1e-12)
        assert list(found.numbers) == list(alone.numbers)
        assert found.tables == alone.tables


@pytest.mark.parametrize("run_on", [run_gloo_threads, run_tcp_threads])
def test_over_real_transports(run_on: Callable[..., list[Any]]) -> None:
    (alone,) = found_by(1, classes_workload)
    for found in found_by(3, classes_workload, run_on):
        assert found.numbers == pytest.approx(alone.numbers, rel=1e-12)


def test_ranks_without_samples_take_part() -> None:
    (alone,) = found_by(1, lambda: classes_workload(samples=2))
    for found in found_by(4, lambda: classes_workload(samples=2)):
        assert found.numbers == pytest.approx(alone.numbers, rel=1e-12, nan_ok=True)


def test_the_loss_comes_first_then_the_metric_that_stands_for_all() -> None:
    (found,) = found_by(1, with_sentences)
    assert list(found.numbers)[:3] == ["loss", "bleu-2", "accuracy"]
    assert set(found.tables) == {"confusion"}
    assert found.lower_is_better == ["loss", "perplexity"]


def test_a_further_test_alone_decides_when_there_are_no_metrics() -> None:
    workload = with_sentences()
    assert workload.main_metric == "bleu-2"
    assert classes_workload().main_metric == "accuracy"
    assert classes_workload(metrics={}).main_metric == "loss"
    assert classes_workload(metrics={"confusion": ConfusionMatrix()}).main_metric == "loss"


def test_a_function_with_a_value_for_each_sample_is_a_metric() -> None:
    mean_output = {"margin": lambda outputs, targets: outputs.max(dim=1).values - outputs.min(dim=1).values}
    (alone,) = found_by(1, lambda: classes_workload(metrics=mean_output))
    torch.manual_seed(0)
    workload = classes_workload()
    outputs = workload.model()(workload.test.tensors[0]).detach()  # type: ignore[union-attr]
    assert alone.numbers["margin"] == pytest.approx(float((outputs.amax(1) - outputs.amin(1)).mean()), rel=1e-12)


def test_a_function_with_another_number_of_values_is_told() -> None:
    with pytest.raises(WorkloadError, match=r"the metric 'mean' gives \(\) for 10 samples, not one value for each"):
        found_by(1, lambda: classes_workload(metrics={"mean": lambda outputs, targets: outputs.mean()}))


def test_modules_stay_in_the_mode_they_were_in() -> None:
    workload = classes_workload(model=lambda: nn.Sequential(nn.Dropout(), nn.Linear(6, 3)).double())
    model = workload.model()
    model[0].eval()
    replica = Replica(model, torch.optim.SGD(model.parameters(), lr=0.1))
    run_threads(1, lambda comm: evaluate(workload, replica, comm, CPU), timeout_seconds=30)
    assert model.training and not model[0].training and model[1].training
