"""The simulator of today against what was measured once: its predictions are made again, from the same profiles."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from minga.comm.probing import Links
from minga.plan.candidates import Candidate
from minga.plan.cluster import PlannedCluster, cluster_of
from minga.plan.pricing import price
from minga.runs.network import Network
from minga.simulate.profile import load_profile
from minga.strategies import Strategy

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
ROWS: list[dict[str, Any]] = json.loads((RESULTS / "predictions.json").read_text())["rows"]
BATCHES = {"CNN": 64, "transformer": 16}


def predicted_again(rows: list[dict[str, Any]], folder: Path) -> list[float]:
    """In milliseconds, as the rows have them."""
    inputs = json.loads((RESULTS / "predictions_inputs.json").read_text())
    machines = cluster_of(Links.from_value(inputs["links"]))
    carrier = dataclasses.replace(machines.carrier, wake_seconds=machines.delays[0][1])
    profiles = {}
    for name, table in inputs["profiles"].items():
        (folder / f"{name}.json").write_text(json.dumps(table))
        profiles[name] = load_profile(folder / f"{name}.json")
    found = []
    for row in rows:
        network = Network(bandwidth=1e6 * row["Mbit/s"], delay=row["delay, ms"] / 1000)
        candidate = Candidate(Strategy.from_value(row["strategy"]), 2, BATCHES[row["workload"]])
        cluster = PlannedCluster(nodes=2, network=network, carrier=carrier)
        found.append(1000 * price(candidate, profiles[row["workload"]], cluster).step_seconds)
    return found


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_predictions_are_as_near_as_is_promised(tmp_path: Path, every: int) -> None:
    rows = ROWS[::every]
    found = predicted_again(rows, tmp_path)
    errors = sorted(abs(mine / row["measured, ms"] - 1) for mine, row in zip(found, rows, strict=True))
    assert statistics.median(errors) <= 0.08
    assert errors[int(0.9 * len(errors))] <= 0.15


@pytest.mark.slow
def test_the_quickest_is_named_first(tmp_path: Path) -> None:
    places: dict[tuple[str, float, float], list[tuple[float, float]]] = defaultdict(list)
    for mine, row in zip(predicted_again(ROWS, tmp_path), ROWS, strict=True):
        places[row["workload"], row["Mbit/s"], row["delay, ms"]].append((mine, row["measured, ms"]))
    chosen = [(min(each)[1], min(measured for _, measured in each)) for each in places.values()]
    assert len(chosen) == 16
    assert sum(taken == best for taken, best in chosen) >= 0.85 * len(chosen)
    assert max(taken / best for taken, best in chosen) <= 1.1
