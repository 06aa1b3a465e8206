"""Sentences of a report: right in usual and in odd cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.made_runs import make_run
from minga.report.dataset.groups import make_dataset
from minga.report.dataset.sources import find_runs
from minga.report.dataset.targets import choose_target
from minga.report.sentences import sentences


def told(*runs: Path, target: float | None = None) -> str:
    dataset = make_dataset(find_runs(list(runs)))
    return "\n".join(sentences(dataset, choose_target(dataset, target)))


def test_slower_than_one_node_and_why(tmp_path: Path) -> None:
    """One node 10 s; four 31 s, of which 2.8 s are own work (a tenth of it exchange): 28.2 s waiting."""
    one = make_run(tmp_path, own_seconds=10)
    four = make_run(tmp_path, nodes=4, bandwidth="10mbit", own_seconds=2.8, wait_seconds=28.2)
    assert "4 nodes at 10 Mbit/s are 3.1x slower than one: 92 % of the time is exchange (99 % of it waiting)." in told(
        one, four
    )


def test_faster_than_one_node_with_its_efficiency(tmp_path: Path) -> None:
    text = told(make_run(tmp_path, own_seconds=12), make_run(tmp_path, nodes=4, own_seconds=3, wait_seconds=1))
    assert "4 nodes are 3.0x faster than one, an efficiency of 75 %" in text
    assert "Accuracy: all groups on several nodes end within a point of one node." in text


def test_what_is_equal_within_the_spread_is_called_equal(tmp_path: Path) -> None:
    ones = [make_run(tmp_path, seed=seed, own_seconds=10 + seed) for seed in range(3)]
    twos = [make_run(tmp_path, nodes=2, seed=seed, own_seconds=9.5 + seed) for seed in range(3)]
    text = told(*ones, *twos)
    assert "2 nodes are as fast as one node within the spread of the runs (1.05x; n = 3 and 3)" in text
    assert "faster" not in text and "slower" not in text


def test_single_runs_are_not_taken_for_more_than_they_are(tmp_path: Path) -> None:
    text = told(make_run(tmp_path, own_seconds=10), make_run(tmp_path, nodes=2, own_seconds=9.8))
    assert "2 nodes are about as fast as one node (1.02x; single runs, where a few percent are noise)" in text
    assert "With one repetition there is no spread" in text


def test_one_run_only(tmp_path: Path) -> None:
    text = told(make_run(tmp_path, own_seconds=10, accuracies=[0.5, 0.9, 0.9, 0.9]))
    assert "One run of digits on one node: accuracy 90.0 % and loss 0.2 after 4 epochs in 10.0 s, 400 " in text
    for word in ("faster", "slower", "speedup", "straggler", "nan"):
        assert word not in text


def test_without_a_run_on_one_node_there_is_no_speedup(tmp_path: Path) -> None:
    text = told(make_run(tmp_path, nodes=2), make_run(tmp_path, nodes=4))
    assert "There is no run of the same work on one node here, so there is no speedup." in text
    assert "faster than one" not in text and "slower than one" not in text


def test_the_straggler_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path, nodes=4, bandwidth="10mbit", own_seconds=[3, 6, 3, 3], wait_seconds=4)
    text = told(run)
    assert "h2 is the straggler: its own work takes 2.0x as long as the median of the others" in text
    assert "who wait for it 30 % of their time (and 70 % in all)." in text


def test_a_pair_has_no_median_of_others(tmp_path: Path) -> None:
    text = told(make_run(tmp_path, nodes=2, own_seconds=[6, 3]))
    assert "rank 0 is the straggler: its own work takes 2.0x as long as the other's, which waits for it 50 %" in text


def test_nobody_is_a_straggler(tmp_path: Path) -> None:
    assert "There is no straggler: no rank's own work takes 20 % longer" in told(make_run(tmp_path, nodes=3))


def test_nothing_is_said_of_stragglers_where_ranks_do_not_wait_for_each_other(tmp_path: Path) -> None:
    assert "straggler" not in told(
        make_run(tmp_path, nodes=2, strategy="ps:mode=async", servers=1, own_seconds=[9.0, 3.0])
    )


def test_the_best_strategy_at_each_bandwidth(tmp_path: Path) -> None:
    runs = []
    for bandwidth, ring, servers in (("10mbit", 20.0, 40.0), ("1gbit", 10.0, 10.1)):
        runs.append(make_run(tmp_path, nodes=4, bandwidth=bandwidth, strategy="ring", own_seconds=ring))
        ps = {"strategy": "ps:mode=sync", "servers": 1}
        runs.append(make_run(tmp_path, nodes=4, bandwidth=bandwidth, own_seconds=servers, **ps))
    text = told(*runs)
    assert "At 10 Mbit/s and 4 nodes, ring is the fastest (20.0 s): 2.0x faster than ps:mode=sync." in text
    assert "At 1 Gbit/s and 4 nodes, ring and ps:mode=sync are equally fast within what single runs can tell." in text


def test_accuracy_that_is_lost(tmp_path: Path) -> None:
    one = [make_run(tmp_path, seed=seed, epochs=1, accuracies=[0.97 + seed / 1000]) for seed in range(3)]
    four = [make_run(tmp_path, nodes=4, seed=seed, epochs=1, accuracies=[0.94 + seed / 100]) for seed in range(3)]
    text = told(*one, *four)
    assert "Accuracy: 4 nodes end at 95.0 %, 2.1 points below one node (97.1 %)." in text


def test_a_target_that_some_never_reach(tmp_path: Path) -> None:
    one = make_run(tmp_path, epochs=2, own_seconds=8, accuracies=[0.8, 0.97])
    two = make_run(tmp_path, nodes=2, epochs=2, accuracies=[0.1, 0.1])
    text = told(one, two)
    assert (
        "Time to accuracy 96.03 % (99 % of the best median on one node): 8.0 s with 1 node; never with 2 nodes." in text
    )
    assert "No group reaches accuracy 99 % (as asked for)." in told(one, two, target=0.99)


def test_a_workload_without_accuracy(tmp_path: Path) -> None:
    losses = [{"loss": 3.0}, {"loss": 1.31}]
    runs = [make_run(tmp_path, nodes=nodes, epochs=2, own_seconds=8, metrics=losses) for nodes in (1, 2)]
    text = told(*runs)
    assert "Time to loss 1.4 (what every group reached, rounded up): 8.0 s" in text
    assert "ccuracy" not in text
    assert "never" not in text


def test_a_run_without_any_evaluation(tmp_path: Path) -> None:
    text = told(make_run(tmp_path, metrics=[], own_seconds=10))
    assert "One run of digits on one node: trained for 4 epochs in 10.0 s" in text


def test_energy_is_marked_where_it_is_an_estimate(tmp_path: Path) -> None:
    one = make_run(tmp_path, own_seconds=10, watts=10.0)
    two = make_run(tmp_path, nodes=2, own_seconds=5, watts=12.0)
    assert (
        "Energy (estimated), 2 nodes take 1.2x the energy of one node (estimated) at 0.60x its energy-delay product "
        "(estimated)." in told(one, two)
    )


@pytest.mark.parametrize(
    ("measured", "expected"), [(0.99, "within 5 %"), (0.92, "9.2 Mbit/s instead of 10 Mbit/s (8 % less)")]
)
def test_links_that_are_off(tmp_path: Path, measured: float, expected: str) -> None:
    assert expected in told(make_run(tmp_path, nodes=2, bandwidth="10mbit", rate_measured=measured))


def test_runs_that_failed_or_are_not_finished_are_told(tmp_path: Path) -> None:
    text = told(
        make_run(tmp_path), make_run(tmp_path, nodes=2, state="failed"), make_run(tmp_path, nodes=2, state="unfinished")
    )
    assert "2 of 3 runs can't be counted: such as " in text
    assert "rank 0 failed at step 3: the disk is full" in text


def test_simulated_times_are_compared_with_measured_ones(tmp_path: Path) -> None:
    text = told(
        make_run(tmp_path, nodes=2, own_seconds=10), make_run(tmp_path, nodes=2, own_seconds=11, simulated=True)
    )
    assert "The simulated time is 1.10x the measured one." in text
