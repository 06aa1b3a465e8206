"""Energy from power, by numbers that can be checked by hand; and estimates that always say so."""

from __future__ import annotations

import dataclasses
import json

import pytest

from minga.measure.energy import FROM_CPU_TIME, Energy, PowerSample, estimated_watts, joules_of, together


def test_energy_is_the_sum_of_power_times_interval() -> None:
    # 500 ms each, as in Cantabria: 0.5 x (100 + 120 + 80) = 150 J.
    samples = [PowerSample(0.5, 0.5, 100.0), PowerSample(1.0, 0.5, 120.0), PowerSample(1.5, 0.5, 80.0)]
    assert joules_of(samples, [(0.0, 1.5)]) == pytest.approx(150)


def test_intervals_may_be_uneven() -> None:
    samples = [PowerSample(0.1, 0.1, 50.0), PowerSample(2.1, 2.0, 10.0)]
    assert joules_of(samples, [(0.0, 10.0)]) == pytest.approx(5 + 20)


def test_only_what_is_inside_of_the_windows_counts() -> None:
    samples = [PowerSample(float(second), 1.0, 10.0) for second in range(1, 11)]  # 10 W from 0 to 10
    assert joules_of(samples, [(2.25, 4.0), (6.0, 6.5)]) == pytest.approx(10 * (1.75 + 0.5))
    assert joules_of(samples, []) == 0


def test_windows_of_several_ranks_become_one_time() -> None:
    assert together([(5, 6), (0, 2), (1, 3), (3, 4)]) == [(0, 4), (5, 6)]
    assert together([(0, 9), (1, 2)]) == [(0, 9)]


def test_the_estimate_is_idle_power_and_that_of_busy_cores() -> None:
    assert estimated_watts(3.0, 2.0, idle_watts=5.0, core_watts=10.0) == pytest.approx(20)  # 1.5 cores
    assert estimated_watts(0.0, 2.0, idle_watts=5.0, core_watts=10.0) == pytest.approx(5)


def test_the_energy_delay_product() -> None:
    assert Energy(1_170_000.0, False, "rapl+nvml").delay_product(3600.0) == pytest.approx(4.212e9)


ESTIMATE = Energy(1234.0, True, FROM_CPU_TIME)


@pytest.mark.parametrize(
    "shown",
    [
        str(ESTIMATE),
        f"{ESTIMATE}",
        repr(ESTIMATE),
        json.dumps(ESTIMATE.to_dict()),
        json.dumps(dataclasses.asdict(ESTIMATE)),
        ESTIMATE.describe_delay_product(2.0),
    ],
)
def test_an_estimate_is_never_shown_without_its_mark(shown: str) -> None:
    assert "estimated" in shown
    assert "2" in shown  # the number is there too


def test_no_format_gets_around_the_mark() -> None:
    with pytest.raises(TypeError):
        f"{ESTIMATE:.1f}"
    with pytest.raises(TypeError):
        float(ESTIMATE)  # type: ignore[arg-type]


@pytest.mark.parametrize(("estimated", "source"), [(True, "rapl"), (False, FROM_CPU_TIME)])
def test_mark_and_source_say_the_same(estimated: bool, source: str) -> None:
    with pytest.raises(AssertionError):
        Energy(1.0, estimated, source)


def test_measured_energy_names_its_counter() -> None:
    assert str(Energy(1_500.0, False, "rapl")) == "1.50 kJ (rapl)"
    assert str(Energy(12.34, False, "nvml")) == "12.3 J (nvml)"
    assert "estimated" not in str(Energy(8.48e6, False, "rapl+nvml"))
