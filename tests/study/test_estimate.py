"""Estimates: rough before anything has run, better with every result."""

from __future__ import annotations

from typing import Any

import pytest

from minga.errors import DataError
from minga.study.cells import Batch, Cell, make_cells
from minga.study.estimate import Forecast

GRID: dict[str, list[Any]] = {"cluster.nodes": [1, 2, 4], "cluster.network.bandwidth": ["10mbit", "1gbit"]}
STEPS = {"workload": "digits", "training": {"steps": 100}}


def cells(experiment: dict[str, Any] = STEPS, grid: dict[str, list[Any]] = GRID) -> dict[str, Cell]:
    return {cell.label: cell for cell in make_cells(experiment, Batch(policy="total", size=96), grid, ())}


def test_slow_networks_take_what_their_rate_says() -> None:
    made = cells()
    forecast = Forecast(made.values())
    slow, fast = forecast.seconds(made["4 nodes, 10mbit"]), forecast.seconds(made["4 nodes, 1gbit"])
    # 2 (1 - 1/4) vectors of 18,408 values of 4 bytes, a hundred times.
    assert slow - fast == pytest.approx(100 * 1.5 * 18_408 * 32 * (1 / 1e7 - 1 / 1e9))
    assert forecast.seconds(made["1 node"]) < slow


def test_servers_carry_everybodys_vectors_and_half_the_bits_take_half_the_time() -> None:
    grid: dict[str, list[Any]] = {"strategy": ["ring", "ps"], "codec": ["none", "half"]}
    made = cells(STEPS | {"cluster": {"nodes": 4, "network": {"bandwidth": "64kbit"}}}, grid)
    forecast = Forecast(made.values())
    seconds = {label: forecast.seconds(cell) for label, cell in made.items()}
    assert seconds["ps, codec none"] / seconds["ring, codec none"] == pytest.approx(8 / 1.5, rel=0.06)
    assert seconds["ps, codec half"] / seconds["ps, codec none"] == pytest.approx(0.5, rel=0.06)


def test_measured_seconds_replace_the_formula_and_correct_that_of_relatives() -> None:
    made = cells()
    forecast = Forecast(made.values())
    before = {label: forecast.seconds(cell) for label, cell in made.items()}
    for seconds in (60.0, 20.0, 30.0):
        forecast.took(made["2 nodes, 10mbit"], seconds)
    assert forecast.seconds(made["2 nodes, 10mbit"]) == 30.0  # the median
    correction = 30.0 / before["2 nodes, 10mbit"]
    assert forecast.seconds(made["4 nodes, 10mbit"]) == pytest.approx(before["4 nodes, 10mbit"] * correction)
    # A result with the same bandwidth says more than one with nothing in common.
    forecast.took(made["1 node"], before["1 node"])
    assert forecast.seconds(made["4 nodes, 10mbit"]) == pytest.approx(before["4 nodes, 10mbit"] * correction)


def test_missing_data_is_told_before_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MINGA_DATA", raising=False)
    with pytest.raises(DataError, match="MINGA_DATA"):
        Forecast(cells({"workload": "mnist"}).values())
