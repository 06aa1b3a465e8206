"""Each metric against the library that people know it from, and in closed form where it is short."""

from __future__ import annotations

import math
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics as oracle
import torch
from torch import Tensor

import minga.metrics
from minga.errors import WorkloadError
from minga.metrics import (
    F1,
    METRICS,
    R2,
    AreaUnderROC,
    Bleu,
    ConfusionMatrix,
    MeanAbsoluteError,
    MeanSquaredError,
    Metric,
    Perplexity,
    RootMeanSquaredError,
    TopKAccuracy,
    WordAccuracy,
)

SAMPLES, CLASSES = 203, 4
HERE = Path(__file__).parent


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_explained_on_the_page_and_tested(name: str) -> None:
    page = (HERE.parents[1] / "docs" / "metrics.md").read_text()
    assert re.search(rf"^\| .*`{name}\(.*\|$", page, re.MULTILINE), "no row in the table of docs/metrics.md"
    assert METRICS[name].__doc__
    assert any(f"{name}(" in path.read_text() for path in HERE.glob("test_*.py"))


def test_all_metrics_are_registered() -> None:
    offered = {name for name in minga.metrics.__all__ if isinstance(getattr(minga.metrics, name), type)}
    assert offered - {"Metric"} == set(METRICS)


@pytest.fixture
def classes() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    targets = torch.randint(CLASSES, (SAMPLES,), generator=generator)
    outputs = torch.randn(SAMPLES, CLASSES, generator=generator, dtype=torch.float64)
    return outputs + 1.2 * torch.eye(CLASSES, dtype=torch.float64)[targets], targets


@pytest.fixture
def labels() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    targets = (torch.rand(SAMPLES, 3, generator=generator) < torch.tensor([0.5, 0.2, 0.9])).float()
    # Rounded, so that there are ties.
    outputs = (torch.randn(SAMPLES, 3, generator=generator, dtype=torch.float64) + targets - 0.5).mul(4).round() / 4
    return outputs, targets


def of(metric: Metric, outputs: Tensor, targets: Tensor) -> float:
    """From three batches, of which one is a single sample."""
    states = [metric.state(outputs[part], targets[part]) for part in (slice(0, 80), slice(80, 81), slice(81, None))]
    value = metric.value(metric.combine(states))
    assert isinstance(value, float)
    return value


@pytest.mark.parametrize("average", ["macro", "micro"])
def test_f1_of_classes(classes: tuple[Tensor, Tensor], average: str) -> None:
    outputs, targets = classes
    expected = oracle.f1_score(targets, outputs.argmax(dim=1), average=average)
    assert of(F1(average=average), outputs, targets) == pytest.approx(expected, abs=1e-15)  # type: ignore[arg-type]


@pytest.mark.parametrize("average", ["macro", "micro"])
def test_f1_of_labels(labels: tuple[Tensor, Tensor], average: str) -> None:
    outputs, targets = labels
    expected = oracle.f1_score(targets, outputs > 0, average=average)
    assert of(F1(average=average), outputs, targets) == pytest.approx(expected, abs=1e-15)  # type: ignore[arg-type]
    probabilities = F1(average=average, threshold=0.5)  # type: ignore[arg-type]
    assert of(probabilities, outputs.sigmoid(), targets) == pytest.approx(expected, abs=1e-15)


def test_a_class_that_never_occurs_has_f1_zero() -> None:
    outputs = torch.eye(3)[torch.tensor([0, 1])]
    assert F1().value(F1().state(outputs, torch.tensor([0, 1]))) == pytest.approx(2 / 3)


def test_f1_is_not_the_mean_of_the_batches(classes: tuple[Tensor, Tensor]) -> None:
    outputs, targets = classes
    halves = [of(F1(), outputs[half], targets[half]) for half in (slice(0, 90), slice(90, None))]
    assert abs(sum(halves) / 2 - of(F1(), outputs, targets)) > 1e-4


def test_roc_auc_of_two_classes_with_ties(labels: tuple[Tensor, Tensor]) -> None:
    scores, truth = labels[0][:, 0], labels[1][:, 0]
    expected = oracle.roc_auc_score(truth, scores)
    assert of(AreaUnderROC(), scores, truth) == pytest.approx(expected, abs=1e-14)
    assert of(AreaUnderROC(), scores.unsqueeze(1), truth) == pytest.approx(expected, abs=1e-14)
    two_outputs = torch.stack([-scores, scores], dim=1)
    assert of(AreaUnderROC(), two_outputs, truth.long()) == pytest.approx(expected, abs=1e-14)


def test_roc_auc_of_labels(labels: tuple[Tensor, Tensor]) -> None:
    outputs, targets = labels
    expected = oracle.roc_auc_score(targets, outputs, average="macro")
    assert of(AreaUnderROC(), outputs, targets) == pytest.approx(expected, abs=1e-14)


def test_roc_auc_of_several_classes(classes: tuple[Tensor, Tensor]) -> None:
    outputs, targets = classes
    expected = oracle.roc_auc_score(targets, outputs.softmax(dim=1), multi_class="ovr", average="macro")
    assert of(AreaUnderROC(), outputs, targets) == pytest.approx(expected, abs=1e-14)


def test_roc_auc_of_labels_that_all_have_is_none() -> None:
    scores, truth = torch.rand(4, 2), torch.tensor([[1.0, 1], [1, 0], [1, 0], [1, 0]])
    state = AreaUnderROC().state(scores, truth)
    only = AreaUnderROC().state(scores[:, 1], truth[:, 1])
    assert AreaUnderROC().value(state) == AreaUnderROC().value(only)
    assert math.isnan(AreaUnderROC().value(AreaUnderROC().state(scores[:, 0], truth[:, 0])))


def test_top_k_accuracy(classes: tuple[Tensor, Tensor]) -> None:
    outputs, targets = classes
    for k in (1, 2, 3):
        expected = oracle.top_k_accuracy_score(targets, outputs, k=k)
        assert of(TopKAccuracy(k=k), outputs, targets) == pytest.approx(expected, abs=1e-15)
    assert of(TopKAccuracy(k=9), outputs, targets) == 1


def test_confusion_matrix(classes: tuple[Tensor, Tensor]) -> None:
    outputs, targets = classes
    metric = ConfusionMatrix()
    parts = [metric.state(outputs[part], targets[part]) for part in (slice(0, 7), slice(7, None))]
    expected = oracle.confusion_matrix(targets, outputs.argmax(dim=1))
    assert metric.value(metric.combine(parts)) == expected.tolist()


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_errors_of_numbers(shift: float) -> None:
    generator = torch.Generator().manual_seed(3)
    targets = torch.randn(SAMPLES, 2, generator=generator, dtype=torch.float64) + shift
    outputs = targets + 0.5 * torch.randn(SAMPLES, 2, generator=generator, dtype=torch.float64)
    squared = oracle.mean_squared_error(targets, outputs)
    assert of(MeanSquaredError(), outputs, targets) == pytest.approx(squared, rel=1e-13)
    assert of(RootMeanSquaredError(), outputs, targets) == pytest.approx(math.sqrt(squared), rel=1e-13)
    absolute = oracle.mean_absolute_error(targets, outputs)
    assert of(MeanAbsoluteError(), outputs, targets) == pytest.approx(absolute, rel=1e-13)
    # Sums of squares around zero would have four digits left at 1e6.
    assert of(R2(), outputs, targets) == pytest.approx(oracle.r2_score(targets, outputs), rel=1e-9)
    # One number for each sample, with or without an axis of its own.
    assert of(R2(), outputs[:, :1], targets[:, 0]) == pytest.approx(oracle.r2_score(targets[:, 0], outputs[:, 0]))


def test_r2_of_what_never_changes() -> None:
    constant = torch.full((SAMPLES,), 0.25)
    assert of(R2(), constant, constant) == 1.0
    assert of(R2(), constant + 1, constant) == 0.0
    tenth = torch.full((3,), 0.1, dtype=torch.float64)  # whose mean is not quite 0.1
    assert R2().value(R2().state(tenth + 1, tenth)) == 0.0


def test_r2_of_what_hardly_changes_is_still_told() -> None:
    targets = 1e6 + 1e-6 * torch.arange(SAMPLES, dtype=torch.float64)
    assert of(R2(), targets, targets) == 1.0
    assert of(R2(), targets.flip(0), targets) == pytest.approx(oracle.r2_score(targets, targets.flip(0)), rel=1e-3)


def test_f1_of_one_output_for_each_sample(labels: tuple[Tensor, Tensor]) -> None:
    outputs, targets = (tensor[:, 0] for tensor in labels)
    told = oracle.f1_score(targets > 0.5, outputs > 0)
    assert of(F1(), outputs.unsqueeze(1), targets) == pytest.approx(told)
    assert of(F1(), outputs.unsqueeze(1), targets.unsqueeze(1)) == pytest.approx(told)
    assert of(F1(), outputs, targets) == of(F1(), outputs, targets.unsqueeze(1)) == pytest.approx(told)


@pytest.mark.parametrize("metric", [F1(), F1(average="micro"), TopKAccuracy(k=2), AreaUnderROC(), ConfusionMatrix()])
def test_classes_that_cross_entropy_ignores_do_not_count(metric: Metric, classes: tuple[Tensor, Tensor]) -> None:
    outputs, targets = classes
    kept = torch.arange(SAMPLES) % 3 != 1
    ignored = targets.where(kept, torch.full_like(targets, -100))
    parts = [metric.state(outputs[part], ignored[part]) for part in (slice(0, 80), slice(82, 83), slice(83, None))]
    left = kept & (torch.arange(SAMPLES) // 2 != 40)
    assert metric.value(metric.combine(parts)) == metric.value(metric.state(outputs[left], targets[left]))


def test_what_is_no_number_gives_none() -> None:
    """A model that has diverged should not look like a poor one, or like the best so far."""
    scores, truth = torch.linspace(0, 1, SAMPLES), (torch.arange(SAMPLES) % 2).float()
    bad = scores.where(torch.arange(SAMPLES) != 90, torch.tensor(math.nan))
    for metric in (AreaUnderROC(), R2(), MeanSquaredError(), MeanAbsoluteError()):
        assert not math.isnan(of(metric, scores, truth)) and math.isnan(of(metric, bad, truth)), metric
    assert math.isnan(of(R2(), scores, bad))
    words, outputs = torch.zeros(SAMPLES, dtype=torch.long), torch.zeros(SAMPLES, 3)
    assert math.isnan(of(Perplexity(), outputs.index_fill(0, torch.tensor([90]), math.nan), words))
    assert math.isnan(of(Perplexity(padding=0), outputs, words))


def test_perplexity_and_accuracy_of_words_leave_padding_out() -> None:
    generator = torch.Generator().manual_seed(4)
    outputs = torch.randn(SAMPLES, 5, 7, generator=generator, dtype=torch.float64)
    targets = torch.randint(1, 7, (SAMPLES, 5), generator=generator)
    targets[torch.arange(5) >= torch.randint(1, 6, (SAMPLES, 1), generator=generator)] = 0
    kept = targets != 0
    entropy = oracle.log_loss(targets[kept], outputs[kept].softmax(dim=1), labels=range(7))
    assert of(Perplexity(padding=0), outputs, targets) == pytest.approx(math.exp(entropy), rel=1e-12)
    right = oracle.accuracy_score(targets[kept], outputs[kept].argmax(dim=1))
    assert of(WordAccuracy(padding=0), outputs, targets) == pytest.approx(right)
    ignored = targets.where(kept, torch.full_like(targets, -100))
    assert of(Perplexity(), outputs, ignored) == pytest.approx(math.exp(entropy), rel=1e-12)
    assert of(WordAccuracy(), outputs, ignored) == pytest.approx(right)
    assert of(Perplexity(), torch.zeros(SAMPLES, 5, 7), targets) == pytest.approx(7)
    assert of(WordAccuracy(), torch.zeros(SAMPLES, 5, 7), torch.zeros(SAMPLES, 5)) == 1


def sentences(count: int, references: int) -> tuple[Tensor, Tensor]:
    """Words 1 to 5; 0 ends a sentence. Some have fewer references than others, one is empty."""
    generator = torch.Generator().manual_seed(5)
    several = torch.randint(1, 6, (count, references, 12), generator=generator)
    lengths = torch.randint(4, 12, (count, references, 1), generator=generator)
    several[torch.arange(12).expand_as(several) >= lengths] = 0
    several[::3, -1] = 0
    generated = several[:, 0].clone()
    changed = torch.rand(count, 12, generator=generator) < 0.2
    generated[changed] = torch.randint(1, 6, (int(changed.sum()),), generator=generator)
    generated[:, :4] = generated[:, :4].clamp(min=1)  # nltk counts an n-gram even where there are fewer than n words
    return generated, several


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_bleu_is_that_of_nltk(order: int) -> None:
    from nltk.translate.bleu_score import corpus_bleu

    generated, several = sentences(40, 3)

    def words(sentence: Tensor) -> list[int]:
        listed: list[int] = sentence.tolist()
        return listed[: listed.index(0)] if 0 in listed else listed

    references = [[words(each) for each in sample if words(each)] for sample in several]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = corpus_bleu(references, [words(each) for each in generated], weights=[1 / order] * order)
    metric = Bleu(order=order)
    states = [metric.state(generated[part], several[part]) for part in (slice(0, 7), slice(7, None))]
    assert metric.value(metric.combine(states)) == pytest.approx(expected, rel=1e-12)
    assert 0.1 < expected < 0.99


def test_bleu_counts_no_n_grams_of_sentences_that_are_too_short() -> None:
    generated, several = torch.tensor([[1, 2, 3], [1, 0, 0]]), torch.tensor([[[1, 2, 3]], [[1, 0, 0]]])
    assert Bleu(order=2).value(Bleu(order=2).state(generated, several)) == 1


def test_bleu_of_what_has_nothing_in_common_is_zero() -> None:
    generated, several = torch.full((1, 4), 9), torch.tensor([[[1, 2, 3, 0]]])
    assert Bleu(order=1).value(Bleu(order=1).state(generated, several)) == 0
    assert Bleu(order=1).value(Bleu(order=1).state(torch.zeros(1, 4, dtype=torch.int64), several)) == 0


def test_which_way_is_better() -> None:
    assert [m.lower_is_better for m in (F1(), AreaUnderROC(), R2(), Bleu(), TopKAccuracy())] == [False] * 5
    errors = (MeanSquaredError(), RootMeanSquaredError(), MeanAbsoluteError(), Perplexity())
    assert [m.lower_is_better for m in errors] == [True] * 4


@pytest.mark.parametrize(
    ("metric", "outputs", "targets", "says"),
    [
        (F1(), torch.zeros(3, 4), torch.zeros(3, 5), r"not of \(3, 4\) and \(3, 5\)"),
        (ConfusionMatrix(), torch.zeros(3, 2), torch.tensor([0, 1, 2]), r"2 outputs, and targets from 0 to 2"),
        (ConfusionMatrix(), torch.zeros(3, 1), torch.zeros(3), r"two or more.* not of \(3, 1\) and \(3,\)"),
        (AreaUnderROC(), torch.zeros(3, 4), torch.zeros(2), r"not of \(3, 4\) and \(2,\)"),
        (MeanSquaredError(), torch.zeros(3, 4), torch.zeros(3), r"outputs \(3, 4\) and targets \(3,\)"),
        (Bleu(), torch.zeros(3, 4), torch.zeros(3, 4), r"not of \(3, 4\) and \(3, 4\)"),
        (Bleu(), torch.ones(1, 4), torch.zeros(1, 2, 4), "no reference"),
    ],
)
def test_shapes_that_do_not_fit_are_told(metric: Metric, outputs: Tensor, targets: Tensor, says: str) -> None:
    with pytest.raises(WorkloadError, match=says):
        metric.state(outputs, targets)


def test_fields_that_make_no_sense_are_told() -> None:
    with pytest.raises(WorkloadError, match="macro or micro, not 'weighted'"):
        F1(average="weighted")  # type: ignore[arg-type]
    with pytest.raises(WorkloadError, match="at least 1, not 0"):
        TopKAccuracy(k=0)
    with pytest.raises(WorkloadError, match="at least 1, not 0"):
        Bleu(order=0)


def test_float32_outputs_are_counted_in_float64() -> None:
    """A hundred thousand errors of 0.1 after one of 1e4 would vanish in float32."""
    targets = np.zeros(100_001, dtype=np.float32)
    outputs = np.full(100_001, 0.1, dtype=np.float32)
    outputs[0] = 1e4
    expected = np.mean(outputs.astype(np.float64) ** 2)
    found = MeanSquaredError()
    value = found.value(found.state(torch.from_numpy(outputs), torch.from_numpy(targets)))
    assert value == pytest.approx(expected, rel=1e-12)
