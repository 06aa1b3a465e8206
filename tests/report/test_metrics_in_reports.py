"""Workloads without an accuracy: the metric that stands for all is the first, and less may be better."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from helpers.made_runs import make_run
from minga.errors import UsageError
from minga.measure.metric_names import main_metric
from minga.report.dataset.groups import Dataset, make_dataset
from minga.report.dataset.sources import find_runs
from minga.report.dataset.targets import choose_target, reached
from minga.report.document import make_report
from minga.report.follow import Follower
from minga.report.live import headline
from minga.report.numbers import shown_metric
from minga.report.sentences import sentences
from minga.report.summary import Summary, summarise
from minga.report.terminal_tables import comparison_table

FALLING = [{"loss": 2.0 / n, "nats": 1.0 / n, "calibration": 0.5} for n in (1, 2, 4, 8)]


def dataset_of(*runs: Path) -> Dataset:
    return make_dataset(find_runs(list(runs)))


def summary_of(run: Path) -> Summary:
    summary = summarise(run)
    assert summary is not None
    return summary


def shown(table: object) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_the_first_metric_that_is_not_the_loss_stands_for_all() -> None:
    assert main_metric(["loss", "F1", "accuracy"]) == "F1"
    assert main_metric(["loss"]) == "loss"
    assert main_metric([]) is None


def test_only_parts_of_all_are_percentages() -> None:
    assert shown_metric("accuracy", 0.9876) == shown_metric("top-5 accuracy", 0.9876) == "98.8 %"
    assert shown_metric("perplexity", 12.345) == "12.35"
    assert shown_metric("R2", -1.5) == "-1.5"
    assert shown_metric(None, None) == "-"


def test_a_target_of_a_metric_of_which_less_is_better(tmp_path: Path) -> None:
    """The run says so itself: nobody could tell it by the name."""
    dataset = dataset_of(make_run(tmp_path, own_seconds=8, metrics=FALLING, lower_is_better=["loss", "nats"]))
    assert dataset.metrics() == ["nats", "loss", "calibration"]
    target = choose_target(dataset, 0.25)
    assert target is not None and target.metric == "nats" and target.lower_is_better
    assert reached(dataset.groups[0], target)[0].median == pytest.approx(6.0)  # after the third of four epochs
    best = choose_target(dataset, None)
    assert best is not None and best.value == pytest.approx(0.13)


def test_a_target_that_is_no_part_of_one_is_refused_for_accuracies_only(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--target 12 is no accuracy"):
        choose_target(dataset_of(make_run(tmp_path / "a")), 12)
    metrics = [{"loss": 1.0, "perplexity": 20.0}] * 4
    target = choose_target(dataset_of(make_run(tmp_path / "b", metrics=metrics)), 12)
    assert target is not None and target.text == "perplexity 12"


def test_runs_that_do_not_say_which_way_is_better_are_read_by_name(tmp_path: Path) -> None:
    dataset = dataset_of(make_run(tmp_path, metrics=[{"loss": 1.0, "perplexity": 20.0, "accuracy": 0.5}] * 4))
    assert dataset.lower_is_better("perplexity") and not dataset.lower_is_better("accuracy")


def test_negative_values_have_a_target_too(tmp_path: Path) -> None:
    dataset = dataset_of(make_run(tmp_path, metrics=[{"loss": 1.0, "R2": -2.0}] * 4))
    target = choose_target(dataset, None)
    assert target is not None and target.value == pytest.approx(-2.02)
    assert reached(dataset.groups[0], target)[1] == 1


def test_sentences_name_the_metric_and_compare_it_by_percent(tmp_path: Path) -> None:
    one = make_run(tmp_path, metrics=FALLING, lower_is_better=["loss", "nats"])
    worse = [{**each, "nats": 1.1 * each["nats"]} for each in FALLING]
    two = make_run(tmp_path, nodes=2, metrics=worse, lower_is_better=["loss", "nats"])
    dataset = dataset_of(one, two)
    text = "\n".join(sentences(dataset, None))
    assert "Nats (less is better): 2 nodes end at 0.1375, 10.0 % above one node (0.125; single runs)." in text
    assert "Accuracy" not in text and "points" not in text
    same = dataset_of(one, make_run(tmp_path, nodes=2, metrics=FALLING))
    assert "Nats: all groups on several nodes end within 1 % of one node." in "\n".join(sentences(same, None))


def test_the_comparison_shows_the_metric_that_there_is(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, metrics=FALLING), make_run(tmp_path, nodes=2, metrics=FALLING)]
    text = shown(comparison_table([summary_of(run) for run in runs]))
    assert "nats" in text and "0.125" in text and "accuracy" not in text
    mixed = shown(comparison_table([summary_of(runs[0]), summary_of(make_run(tmp_path, accuracies=[0.9]))]))
    assert "metric" in mixed and "nats 0.125" in mixed and "accuracy 90.0 %" in mixed


def test_the_summary_names_its_metric(tmp_path: Path) -> None:
    summary = summary_of(make_run(tmp_path, metrics=FALLING))
    assert (summary.metric, summary.quality, summary.accuracy) == ("nats", 0.125, None)
    assert summary_of(make_run(tmp_path, accuracies=[0.5])).accuracy == 0.5


def test_the_live_view_shows_numbers_as_what_they_are(tmp_path: Path) -> None:
    follower = Follower(make_run(tmp_path, metrics=[{"loss": 1.0, "perplexity": 20.0, "accuracy": 0.5}] * 4))
    follower.read()
    assert "perplexity 20   accuracy 50.0 %" in str(headline(follower))


def test_a_confusion_matrix_is_a_table_of_the_report(tmp_path: Path) -> None:
    run = make_run(tmp_path, tables={"confusion": [[40.0, 2.0], [5.0, 1053.0]]})
    report = make_report([run])
    table = next(table for table in report.tables if table.name == "confusion-1")
    assert table.cells()[1] == [("1", ""), ("5", ""), ("1,053", "")]
