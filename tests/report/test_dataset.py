"""Numbers of a report against ones that were computed by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from helpers.made_runs import make_run, make_study
from minga.errors import UsageError
from minga.report.dataset.groups import Dataset, RunGroup, make_dataset
from minga.report.dataset.links import links_of
from minga.report.dataset.reading import read_run
from minga.report.dataset.sources import find_runs
from minga.report.dataset.statistics import Spread, differ
from minga.report.dataset.stragglers import find_straggler
from minga.report.dataset.targets import Target, choose_target, reached, time_to


def dataset_of(*runs: Path) -> Dataset:
    return make_dataset(find_runs(list(runs)))


def labelled(dataset: Dataset, label: str) -> RunGroup:
    return next(group for group in dataset.groups if group.label == label)


def test_median_and_spread_of_odd_and_even_numbers() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0, 3)
    assert Spread.of([4.0, 1.0]) == Spread(2.5, 1.0, 4.0, 2)
    assert Spread.of([None, math.nan]) is None
    assert Spread.of([1.0, math.inf, 2.0]) == Spread(2.0, 1.0, math.inf, 3)
    assert Spread.of([1.0, math.inf]) == Spread(math.inf, 1.0, math.inf, 2)


def test_medians_differ_only_if_their_ranges_do_not_overlap() -> None:
    assert differ(Spread(10, 9, 11, 3), Spread(13, 12, 14, 3))
    assert not differ(Spread(10, 9, 12.5, 3), Spread(13, 12, 14, 3))
    assert not differ(Spread(100, 99.9, 100.1, 3), Spread(101, 100.9, 101.1, 3)), "1 % is nothing"
    assert not differ(Spread(100, 100, 100, 1), Spread(104, 104, 104, 1)), "single runs: a few percent are noise"
    assert differ(Spread(100, 100, 100, 1), Spread(110, 110, 110, 1))


def test_runs_that_differ_only_in_their_seed_are_one_group(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / str(seed), seed=seed, own_seconds=10 + seed) for seed in range(3)]
    dataset = dataset_of(*runs, make_run(tmp_path, nodes=2, own_seconds=6))
    assert [(group.label, group.n) for group in dataset.groups] == [("1 node", 3), ("2 nodes", 1)]
    assert dataset.groups[0].seconds == Spread(11.0, 10.0, 12.0, 3)
    assert dataset.groups[0].middle.seed == 1


def test_speedup_and_efficiency_are_relative_to_the_median_of_one_node(tmp_path: Path) -> None:
    alone = [make_run(tmp_path, seed=seed, own_seconds=seconds) for seed, seconds in enumerate((11.0, 12.0, 13.0))]
    four = make_run(tmp_path, nodes=4, own_seconds=3.0, wait_seconds=1.0)
    dataset = dataset_of(*alone, four)
    speedup = dataset.speedup(dataset.groups[1])
    assert speedup is not None
    assert speedup.median == pytest.approx(3.0), "12 s on one node, 4 s on four"
    assert speedup.divided_by(4).median == pytest.approx(0.75)
    assert dataset.groups[1].share("wait") == pytest.approx(0.25)
    assert dataset.groups[1].share("exchange", "wait") == pytest.approx(0.25 + 0.75 * 0.1)


def test_work_that_is_not_the_same_is_compared_by_samples(tmp_path: Path) -> None:
    """With a number of steps instead of epochs, two nodes do twice the work in the same time: a speedup of 2."""
    one, two = make_run(tmp_path, epochs=4), make_run(tmp_path, nodes=2, epochs=4)
    for run in (one, two):
        text = (run / "experiment.toml").read_text().replace("epochs = 4", "steps = 20")
        (run / "experiment.toml").write_text(text)
    for events in (two / "events").glob("*.jsonl"):
        events.write_text(events.read_text().replace('"samples": 100', '"samples": 200'))
    dataset = dataset_of(one, two)
    assert not dataset.same_work
    speedup = dataset.speedup(dataset.groups[1])
    assert speedup is not None and speedup.median == pytest.approx(2.0)


def test_time_to_a_target_leaves_evaluations_out(tmp_path: Path) -> None:
    """4 epochs in 10 s, so the second evaluation comes after 5 s of training, whatever the evaluations took."""
    run = dataset_of(make_run(tmp_path, own_seconds=10, accuracies=[0.5, 0.9, 0.91, 0.92])).groups[0].runs[0]
    assert [point.seconds for point in run.curve] == pytest.approx([2.5, 5.0, 7.5, 10.0])
    assert time_to(run, Target("accuracy", 0.9, "")) == pytest.approx(5.0)
    assert time_to(run, Target("accuracy", 0.95, "")) == math.inf
    assert time_to(run, Target("loss", 0.2, "", lower_is_better=True)) == pytest.approx(5.0)


@pytest.mark.parametrize("lost", [0, 2])
def test_a_run_that_went_on_without_a_rank_is_finished(tmp_path: Path, lost: int) -> None:
    whole = read_run(make_run(tmp_path / "whole", nodes=3, own_seconds=10))
    run = make_run(tmp_path, nodes=3, own_seconds=10, lost=lost)
    found = find_runs([run])
    assert found.notes == [f"{run.name}: rank {lost} got lost on the way; the others went on without it."]
    (read,) = found.runs
    assert (read.problem, read.lost) == (None, [lost])
    # Curves go on where the first rank does not, and evaluations do not count whoever told of them.
    assert [point.seconds for point in read.curve] == pytest.approx([2.5, 5.0, 7.5, 10.0])
    assert read.training_losses == whole.training_losses
    assert read.finished.training_loss == whole.finished.training_loss
    assert read.finished.bytes_sent < whole.finished.bytes_sent
    assert find_straggler(make_dataset(found).groups[0]) is None, "who was lost early has not worked less in a step"


def test_a_run_is_not_finished_as_long_as_one_that_is_left_is_not(tmp_path: Path) -> None:
    run = make_run(tmp_path, nodes=3, lost=1)
    events = run / "events" / "rank-2.jsonl"
    events.write_text("".join(line for line in events.read_text().splitlines(True) if '"finished"' not in line))
    assert read_run(run).problem == "it is not finished: 1 of 2 ranks say that they are done"
    # Whoever was lost at the very end, when the others had nothing left to form anew for.
    (run / "model.safetensors").touch()
    assert (read_run(run).problem, read_run(run).lost) == (None, [1, 2])


def test_profiles_and_reports_beside_the_runs_are_passed_over(tmp_path: Path) -> None:
    """So that `runs/*` is all that people need to type."""
    run = make_run(tmp_path)
    (tmp_path / "profiles").mkdir()
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "report.html").touch()
    assert [read.directory for read in find_runs(sorted(tmp_path.iterdir())).runs] == [run]
    (tmp_path / "holiday").mkdir()
    with pytest.raises(UsageError, match="holiday is empty"):
        find_runs(sorted(tmp_path.iterdir()))


def test_a_target_that_half_of_the_runs_miss_is_never_reached(tmp_path: Path) -> None:
    good, bad = [0.5, 0.9], [0.5, 0.6]
    runs = [
        make_run(tmp_path, seed=seed, epochs=2, accuracies=each, own_seconds=8)
        for seed, each in enumerate((good, bad, good))
    ]
    target = Target("accuracy", 0.9, "")
    spread, count = reached(dataset_of(*runs).groups[0], target)
    assert (spread.median, spread.high, count) == (pytest.approx(8.0), math.inf, 2)
    spread, count = reached(dataset_of(*runs[:2]).groups[0], target)
    assert (spread.median, count) == (math.inf, 1)


@pytest.mark.parametrize(
    ("one", "two", "value", "reason"),
    [
        (0.973, 0.958, 0.95, "the highest round accuracy that every group reached"),
        (0.973, 0.10, 0.9632, "99 % of the best median on one node"),
    ],
)
def test_the_target_is_one_that_all_reach_unless_one_learned_nothing(
    tmp_path: Path, one: float, two: float, value: float, reason: str
) -> None:
    runs = [make_run(tmp_path, nodes=nodes, epochs=1, accuracies=[a]) for nodes, a in ((1, one), (2, two))]
    target = choose_target(dataset_of(*runs), None)
    assert target == Target("accuracy", value, reason)


def test_every_group_reaches_what_every_group_is_said_to_reach(tmp_path: Path) -> None:
    """With two runs the median of their accuracies may be reached by only one of them."""
    runs = [make_run(tmp_path, seed=seed, epochs=1, accuracies=[a]) for seed, a in enumerate((0.94, 0.97))]
    dataset = dataset_of(*runs, make_run(tmp_path, nodes=2, epochs=1, accuracies=[0.97]))
    target = choose_target(dataset, None)
    assert target is not None and target.value == 0.9
    assert all(math.isfinite(reached(group, target)[0].median) for group in dataset.groups)


def test_energy_delay_product_relative_to_one_node(tmp_path: Path) -> None:
    """One node: 10 s x 10 W = 100 J, 1000 Js. Two: 2 x 5 s x 12 W = 120 J, 600 Js."""
    one = make_run(tmp_path, own_seconds=10, watts=10.0)
    two = make_run(tmp_path, nodes=2, own_seconds=5, watts=12.0)
    dataset = dataset_of(one, two)
    energy = dataset.groups[1].energy
    assert energy is not None and energy.estimated
    assert energy.joules.median == pytest.approx(120)
    assert energy.joule_seconds.median == pytest.approx(600)
    assert dataset.relative_energy(dataset.groups[1]) == pytest.approx((1.2, 0.6))


def test_the_straggler_is_who_works_longest_not_who_waits(tmp_path: Path) -> None:
    group = dataset_of(
        make_run(tmp_path, nodes=4, bandwidth="10mbit", own_seconds=[3, 6, 3, 3], wait_seconds=2)
    ).groups[0]
    straggler = find_straggler(group)
    assert straggler is not None
    assert straggler.name == "h2"
    assert straggler.slower == pytest.approx(2.0)
    assert straggler.waiting == pytest.approx(3 / 8), "3 s longer, of 8 s"
    assert straggler.waiting_in_all == pytest.approx(5 / 8)


@pytest.mark.parametrize("strategy", ["native", "ps:mode=async"])
def test_there_is_no_straggler_where_none_is(tmp_path: Path, strategy: str) -> None:
    servers = int(strategy.startswith("ps"))
    own = [3.0, 3.3, 3.0] if strategy == "native" else [3.0, 6.0, 3.0]
    run = make_run(tmp_path, nodes=3, strategy=strategy, own_seconds=own, servers=servers)
    assert find_straggler(dataset_of(run).groups[0]) is None


def test_who_is_slow_only_once_is_no_straggler(tmp_path: Path) -> None:
    own = ([3.0, 9.0, 3.0], [3.0, 3.0, 3.0], [3.0, 9.0, 3.0])
    runs = [make_run(tmp_path, nodes=3, seed=seed, own_seconds=each) for seed, each in enumerate(own)]
    assert find_straggler(dataset_of(*runs).groups[0]) is None
    assert find_straggler(dataset_of(runs[0], runs[2]).groups[0]) is not None


def test_labels_are_made_of_what_differs(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path, nodes=nodes, bandwidth=bandwidth, strategy=strategy)
        for nodes, bandwidth, strategy in (
            (1, None, None),
            (2, "10mbit", "ring"),
            (2, "1gbit", "ring"),
            (2, "10mbit", "ps:mode=sync"),
        )
    ]
    runs.append(make_run(tmp_path, nodes=4, bandwidth="10mbit", strategy="ring"))
    assert [group.label for group in dataset_of(*runs).groups] == [
        "1 node",
        "2 nodes, 10 Mbit/s, ps:mode=sync",
        "2 nodes, 10 Mbit/s, ring",
        "4 nodes, 10 Mbit/s, ring",
        "2 nodes, 1 Gbit/s, ring",
    ]


def test_what_follows_from_the_number_of_nodes_is_not_said_again(tmp_path: Path) -> None:
    one = make_run(tmp_path, settings={"training.batch": 96})
    four = make_run(tmp_path, nodes=4, bandwidth="10mbit", settings={"training.total_batch": 96})
    dataset = dataset_of(one, four)
    assert [group.label for group in dataset.groups] == ["1 node", "4 nodes"]
    assert dataset.baseline(dataset.groups[1]) is dataset.groups[0]


def test_the_baseline_is_the_one_with_the_same_batch(tmp_path: Path) -> None:
    ones = [make_run(tmp_path, settings={"training.batch": batch}) for batch in (32, 64)]
    dataset = dataset_of(*ones, make_run(tmp_path, nodes=2, settings={"training.total_batch": 64}))
    baseline = dataset.baseline(dataset.groups[2])
    assert baseline is not None and baseline.settings["training.batch"] == 64


def test_one_node_on_the_distributed_way_is_compared_with_one_alone(tmp_path: Path) -> None:
    alone = make_run(tmp_path, own_seconds=10, strategy="single")
    dataset = dataset_of(alone, make_run(tmp_path, own_seconds=12.5, strategy="native"))
    assert dataset.speedup(dataset.groups[0]) is None
    speedup = dataset.speedup(dataset.groups[1])
    assert speedup is not None and speedup.median == pytest.approx(0.8)


def test_a_run_with_another_amount_of_work_is_no_baseline(tmp_path: Path) -> None:
    dataset = dataset_of(make_run(tmp_path, epochs=2), make_run(tmp_path, nodes=2, epochs=4))
    assert dataset.speedup(dataset.groups[1]) is None


def test_a_study_is_grouped_by_cells_and_knows_environments(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "runs", nodes=nodes, seed=seed) for nodes in (1, 2) for seed in (0, 1)]
    make_study(tmp_path, [({"cluster.nodes": 1}, runs[:2]), ({"cluster.nodes": 2}, runs[2:])], failed="3 nodes")
    results = (tmp_path / "results.jsonl").read_text().splitlines()
    named = [
        line.replace('"environment": null', '"environment": "a pair"') if '"c1"' in line else line for line in results
    ]
    (tmp_path / "results.jsonl").write_text("\n".join(named) + "\n")
    dataset = dataset_of(tmp_path)
    assert [(group.label, group.n) for group in dataset.groups] == [("digits, 1 node", 2), ("a pair", 2)]
    assert dataset.found.failures == [("3 nodes, repetition 1", "rank 1 failed: out of memory")]
    assert dataset.speedup(labelled(dataset, "a pair")) is not None


def test_simulated_runs_are_groups_of_their_own(tmp_path: Path) -> None:
    dataset = dataset_of(make_run(tmp_path, nodes=2), make_run(tmp_path, nodes=2, simulated=True))
    assert [group.label for group in dataset.groups] == [
        "digits, 2 nodes, native",
        "digits, 2 nodes, native, simulated",
    ]


def test_links_asked_and_measured(tmp_path: Path) -> None:
    rows = links_of(dataset_of(make_run(tmp_path, nodes=2, bandwidth="10mbit", rate_measured=0.9)))
    assert len(rows) == 6
    assert [row.deviation for row in rows if row.quantity == "rate"] == pytest.approx([-0.1] * 4)
