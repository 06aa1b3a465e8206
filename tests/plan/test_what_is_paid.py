"""What a plan says of energy, prices, bytes and of which machine does what, held against a reckoning by hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from minga.plan.candidates import Candidate
from minga.plan.cluster import CarrierCosts, PlannedCluster
from minga.plan.planner import plan
from minga.plan.pricing import price
from minga.plan.trial_run import first_reach
from minga.runs.network import LinkOverride, Network
from minga.simulate.profile import CodecCost, Compute, Layer, Profile
from minga.strategies import Strategy

FREE = CarrierCosts(
    send_seconds=0, receive_seconds=0, wake_seconds=0, send_seconds_per_byte=0, receive_seconds_per_byte=0
)
PROFILE = Profile(
    workload="made",
    layers=(Layer(name="only", shape=(100, 1000)),),
    compute=(Compute(batch=64, forward=1e-2, backward=1e-2),),
    update_seconds=0.0,
    samples=6400,
    batch=64,
    epochs=2,
    codecs={"int8": CodecCost(encode=1e-3, decode=5e-4)},
)
NBYTES = 4 * 100_000


def candidate(spec: str, nodes: int) -> Candidate:
    return Candidate(Strategy.from_value(spec), nodes, 64)


def test_a_node_that_works_takes_more_than_one_that_waits() -> None:
    machines = PlannedCluster(nodes=2, carrier=FREE, idle_watts=7.0, core_watts=100.0)
    alone = price(candidate("single", 1), PROFILE, machines, varied=False)
    assert alone.joules_per_epoch == pytest.approx((7.0 + 100.0) * alone.epoch_seconds)
    slow = dataclasses.replace(machines, network=Network(bandwidth="1mbit"))  # type: ignore[arg-type]
    ring = price(candidate("ring", 2), PROFILE, slow, varied=False)
    assert ring.waiting == pytest.approx(1 - 0.02 / ring.step_seconds) and ring.waiting > 0.9
    watts = 2 * (7.0 + 100.0 * 0.02 / ring.step_seconds)
    assert ring.joules_per_epoch == pytest.approx(watts * ring.epoch_seconds)


def test_machines_with_nothing_but_servers_are_paid_for() -> None:
    machines = PlannedCluster(nodes=3, carrier=FREE, price_per_hour=3600.0, idle_watts=7.0, core_watts=0.0)
    apart = price(candidate("ps:mode=sync,servers=1,placement=own", 2), PROFILE, machines, varied=False)
    assert apart.cost_per_epoch == pytest.approx(3 * apart.epoch_seconds)
    assert apart.joules_per_epoch == pytest.approx(3 * 7.0 * apart.epoch_seconds)
    beside = price(candidate("ps:mode=sync,servers=1,placement=beside", 2), PROFILE, machines, varied=False)
    assert beside.cost_per_epoch == pytest.approx(2 * beside.epoch_seconds)


def test_what_servers_work_takes_energy() -> None:
    """A server that updates for 50 ms, and two workers who compute for 20 ms and wait for it."""
    machines = PlannedCluster(nodes=3, carrier=FREE, idle_watts=0.0, core_watts=100.0)
    slow = dataclasses.replace(PROFILE, update_seconds=0.05)
    apart = price(candidate("ps:mode=sync,servers=1,placement=own", 2), slow, machines, varied=False)
    assert apart.step_seconds == pytest.approx(0.07, rel=0.05)
    watts = 100.0 * (2 * 0.02 + 0.05) / apart.step_seconds
    assert apart.joules_per_epoch == pytest.approx(watts * apart.epoch_seconds, rel=0.1)


def test_answers_of_servers_are_bytes_too() -> None:
    apart = price(candidate("ps:mode=sync,servers=1,placement=own", 2), PROFILE, PlannedCluster(nodes=3), varied=False)
    # Two gradients there and two times the parameters back; and some words.
    assert apart.bytes_per_step == pytest.approx(4 * NBYTES, rel=0.4)
    assert apart.bytes_per_step > 3.9 * NBYTES


def test_a_plan_lets_a_ring_go_by_the_shortest_ways() -> None:
    """Even and odd nodes are in two rooms: as they are numbered every hop would be a far one."""
    delays = tuple(tuple(0.0 if a == b else 0.001 if (a - b) % 2 == 0 else 0.05 for b in range(4)) for a in range(4))
    machines = PlannedCluster(nodes=4, carrier=FREE, delays=delays, speeds=(1.0, 1.0, 1.0, 0.5))
    (ring,) = plan(PROFILE, machines, candidates=[candidate("ring", 4)]).ranked
    order = ring.candidate.order
    assert sum((a - b) % 2 for a, b in zip(order, [*order[1:], order[0]], strict=True)) == 2
    assert ring.price.step_seconds < price(candidate("ring", 4), PROFILE, machines).step_seconds
    (stays,) = plan(PROFILE, machines, candidates=[candidate("ring", 4)], ranks_may_move=False).ranked
    assert stays.candidate.order == ()


def test_a_slow_machine_is_slow_wherever_it_stands_in_the_order() -> None:
    machines = PlannedCluster(nodes=3, carrier=FREE, speeds=(0.25, 1.0, 1.0))
    moved = dataclasses.replace(candidate("single", 1), order=(1,))
    assert price(moved, PROFILE, machines, varied=False).step_seconds == pytest.approx(0.02)
    assert price(candidate("single", 1), PROFILE, machines, varied=False).step_seconds == pytest.approx(0.08)


def test_servers_apart_take_the_widest_cables_and_then_the_slowest_machines() -> None:
    spec = candidate("ps:mode=sync,servers=1,placement=own", 2)
    wide = {"h2": LinkOverride(bandwidth="1gbit")}  # type: ignore[arg-type]
    machines = PlannedCluster(nodes=3, network=Network(bandwidth="100mbit", hosts=wide))  # type: ignore[arg-type]
    assert plan(PROFILE, machines, candidates=[spec]).best.candidate.order == (0, 2, 1)
    uneven = PlannedCluster(nodes=3, speeds=(1.0, 0.5, 1.0))
    assert plan(PROFILE, uneven, candidates=[spec]).best.candidate.order == (0, 2, 1)


def test_of_equal_machines_the_near_ones_are_taken() -> None:
    far = tuple(tuple(0.0 if a == b else 0.2 if 1 in (a, b) else 0.01 for b in range(3)) for a in range(3))
    assert PlannedCluster(nodes=3, delays=far).best_nodes(2) == (0, 2)
    cables = {"h1": LinkOverride(delay="50ms")}  # type: ignore[arg-type]
    assert PlannedCluster(nodes=3, network=Network(hosts=cables)).best_nodes(2) == (1, 2)


def test_what_can_not_be_priced_is_left_out_and_the_rest_is_ranked() -> None:
    unknown = candidate("ring:codec=(top_k:ratio=0.5)", 2)
    found = plan(PROFILE, PlannedCluster(nodes=2), candidates=[unknown, candidate("ring", 2)])
    assert [each.candidate.name for each in found.ranked] == ["ring"]
    assert [("top_k" in name, "minga profile made" in why) for name, why in found.left_out.items()] == [(True, True)]


def test_where_nothing_is_quick_enough_all_are_ranked() -> None:
    found = plan(PROFILE, PlannedCluster(nodes=2), candidates=[candidate("single", 1)], within=1e-6)
    assert found.best.seconds > 1e-6


@pytest.mark.parametrize(
    ("spec", "nodes"), [("single", 1), ("local_sgd:period=4,overlap=4", 2), ("ps:mode=async,placement=beside", 2)]
)
def test_steps_take_what_they_take_in_the_mean_whatever_a_few_of_them_did_by_chance(spec: str, nodes: int) -> None:
    """One of forty steps is very slow; six that are simulated have seen none of that, or too much."""
    rare = dataclasses.replace(PROFILE, spread=(1.0,) * 20 + (21.0,))
    mean = 1.0 + 20.0 / 2 / 20  # of twenty stretches between quantiles, the last one rises to 21
    assert rare.mean_factor == pytest.approx(mean)
    machines = PlannedCluster(nodes=nodes, carrier=FREE, speeds=(0.5,) * nodes)
    found = price(candidate(spec, nodes), rare, machines)
    assert found.step_seconds == pytest.approx(2 * 0.02 * mean, rel=0.1)
    assert found.waiting < 0.1


def test_an_accuracy_is_reached_when_it_was_seen_first_without_the_time_of_testing(tmp_path: Path) -> None:
    events = [
        {"event": "started", "time": 2.0, "rank": 0, "ranks": 1, "pid": 1, "parameters": 10, "samples": 320}
        | {"batch": 8, "epochs": 3, "steps": None},
        {"event": "evaluated", "time": 12.0, "step": 1, "seconds": 1.0, "epoch": 1, "metrics": {"accuracy": 0.5}},
        {"event": "evaluated", "time": 23.0, "step": 1, "seconds": 1.0, "epoch": 2, "metrics": {"accuracy": 0.9}},
        {"event": "evaluated", "time": 34.0, "step": 1, "seconds": 1.0, "epoch": 3, "metrics": {"accuracy": 0.95}},
    ]
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "rank-0.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    reached = first_reach(tmp_path, 0.9)
    assert (reached.seconds, reached.epochs, reached.best) == (19.0, 2, 0.95)
    assert first_reach(tmp_path, 0.96).seconds is None
