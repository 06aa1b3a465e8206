"""Quantities as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from minga.base.units import (
    format_bandwidth,
    format_duration,
    parse_bandwidth,
    parse_duration,
    parse_fraction,
    parse_seconds,
)
from minga.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "bits"),
    [("10mbit", 10e6), ("1gbit", 1e9), ("512kbit", 512e3), ("10 Mbit/s", 10e6), ("1.5Gbit", 1.5e9), ("9600bit", 9600)],
)
def test_bandwidths(text: str, bits: float) -> None:
    assert parse_bandwidth(text) == bits


@pytest.mark.parametrize(("text", "seconds"), [("5ms", 0.005), ("200us", 200e-6), ("200µs", 200e-6), ("1.5 s", 1.5)])
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(("given", "seconds"), [("3", 3.0), ("0.5", 0.5), ("30s", 30.0), ("2min", 120.0), (7, 7)])
def test_seconds_may_have_a_unit(given: object, seconds: float) -> None:
    assert parse_seconds(given) == seconds


@pytest.mark.parametrize(("text", "part"), [("1%", 0.01), ("0.5 %", 0.005), ("0.25", 0.25)])
def test_fractions(text: str, part: float) -> None:
    assert parse_fraction(text) == pytest.approx(part)


def test_numbers_are_taken_as_they_are() -> None:
    assert parse_bandwidth(10e6) == 10e6
    assert parse_duration(0.005) == 0.005
    assert parse_fraction(0.5) == 0.5


@pytest.mark.parametrize("text", ["10", "10mb", "10mbps", "fast", "", "mbit", "1.2.3mbit"])
def test_what_is_no_bandwidth_is_told_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="such as 10mbit"):
        parse_bandwidth(text)


@pytest.mark.parametrize("text", ["5", "5 minutes", "ms", "1d"])
def test_what_is_no_time_is_told_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="such as 5ms"):
        parse_duration(text)


def test_what_is_no_fraction_is_told() -> None:
    with pytest.raises(ConfigError, match=r"1% or 0\.01"):
        parse_fraction("a lot")


@given(some.floats(min_value=1, max_value=1e11))
def test_bandwidths_come_back(bits: float) -> None:
    assert parse_bandwidth(format_bandwidth(bits)) == pytest.approx(bits, rel=1e-9)


@given(some.floats(min_value=1e-6, max_value=1e4))
def test_durations_come_back(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=1e-9)


def test_formats_are_short() -> None:
    assert format_bandwidth(10e6) == "10mbit"
    assert format_bandwidth(0) == "0gbit"
    assert format_duration(0.0205) == "20.5ms"
