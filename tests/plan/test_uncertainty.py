"""What plans say of their own errors is what was measured."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from minga.plan.candidates import Candidate
from minga.plan.cluster import PlannedCluster
from minga.plan.planner import Plan, Planned
from minga.plan.pricing import STEP_ERROR, Price, price
from minga.plan.trial_run import REACHED_ERROR, Reached
from minga.runs.network import Network
from minga.simulate.profile import Compute, Layer, Profile
from minga.strategies import Strategy

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
PROFILE = Profile(
    workload="made",
    layers=(Layer(name="only", shape=(100, 100)),),
    compute=(Compute(batch=64, forward=1e-2, backward=1e-2),),
    update_seconds=5e-4,
    samples=6400,
    batch=64,
)


def priced(spec: str) -> Price:
    cluster = PlannedCluster(nodes=2, network=Network(bandwidth="100mbit"))  # type: ignore[arg-type]
    return price(Candidate(Strategy.from_value(spec), 2, 64), PROFILE, cluster, varied=False)


def measured(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((RESULTS / f"{name}.json").read_text())["rows"]
    return rows


def test_nine_of_ten_measured_steps_are_within_what_plans_say() -> None:
    rows = measured("predictions")
    errors = [abs(row["error"]) for row in rows]
    assert len(errors) >= 40
    assert sum(error <= STEP_ERROR for error in errors) >= 0.9 * len(errors)


def test_measured_times_to_accuracy_are_within_what_plans_say() -> None:
    rows = measured("predicted_accuracy")
    assert all(row["error"] is not None and abs(row["error"]) <= REACHED_ERROR for row in rows)


def test_an_exact_strategy_is_uncertain_by_its_steps_only() -> None:
    exact = priced("ring")
    middle = exact.total(3, "time")
    assert exact.between(3, "time") == pytest.approx(((1 - STEP_ERROR) * middle, (1 + STEP_ERROR) * middle))
    assert exact.between(3, "bytes") == pytest.approx((exact.total(3, "bytes"),) * 2)
    assert exact.step_between[0] < exact.step_seconds < exact.step_between[1]


def test_what_is_off_in_a_step_is_off_in_its_waiting() -> None:
    half = dataclasses.replace(priced("ring"), waiting=0.5)
    assert half.waiting_between == pytest.approx((1 - 0.5 / (1 - STEP_ERROR), 1 - 0.5 / (1 + STEP_ERROR)))
    assert dataclasses.replace(half, waiting=0.0).waiting_between[0] == 0


def test_assumed_epochs_may_be_none_or_twice_as_many() -> None:
    local = priced("local_sgd:period=16")
    sent = local.total(3, "bytes") / local.candidate.epochs_factor
    extra = local.candidate.epochs_factor - 1
    assert local.between(3, "bytes") == pytest.approx((sent, (1 + 2 * extra) * sent))


def test_a_pilot_has_limits_around_it() -> None:
    assert Reached(100.0, 3.0, 0.9).seconds_between == pytest.approx(
        (100 * (1 - REACHED_ERROR), 100 * (1 + REACHED_ERROR))
    )


def test_who_is_nearer_to_the_best_than_predictions_are_is_too_near() -> None:
    one = priced("ring")
    seconds = one.total(1, "time")
    first = Planned(price=one, epochs=1, amount=seconds, seconds=seconds, why="")
    amounts = (seconds, seconds * (1 + STEP_ERROR / 2), seconds * (1 + 2 * STEP_ERROR))
    ranked = tuple(dataclasses.replace(first, amount=amount) for amount in amounts)
    assert Plan(ranked, "time", 1, {}).too_near == 1
    sent = one.total(1, "bytes")
    ranked = tuple(dataclasses.replace(first, amount=amount) for amount in (sent, 1.01 * sent))
    assert Plan(ranked, "bytes", 1, {}).too_near == 0, "bytes are exact"
