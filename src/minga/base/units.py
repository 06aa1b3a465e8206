"""Quantities as people write them: `10mbit`, `5ms`, `1%`.

    parse_bandwidth("10mbit")        # 10_000_000.0 bits per second
    format_duration(0.005)           # "5ms"

A number that is not a string is taken as it is: bits per second, seconds, a fraction.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

from minga.errors import ConfigError

__all__ = [
    "Bandwidth",
    "Duration",
    "Fraction",
    "Seconds",
    "format_bandwidth",
    "format_duration",
    "parse_bandwidth",
    "parse_duration",
    "parse_fraction",
    "parse_seconds",
]

_BANDWIDTHS = {"gbit": 1e9, "mbit": 1e6, "kbit": 1e3, "bit": 1.0}
_DURATIONS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
_LONG_DURATIONS = {"h": 3600.0, "min": 60.0}


def parse_bandwidth(value: Any) -> Any:
    """Bits per second from `10mbit`, `10 Mbit/s`, `1gbit`, `512kbit`."""
    return _parse(value, _BANDWIDTHS, r"(?:/s)?", "bandwidth", "10mbit")


def parse_duration(value: Any) -> Any:
    """Seconds from `5ms`, `200us`, `1.5s`, `10min`, `2h`."""
    return _parse(value, _DURATIONS | _LONG_DURATIONS, "", "time", "5ms or 10min")


def parse_seconds(value: Any) -> Any:
    """Seconds from `30s` or `10min`, and from a plain number."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return parse_duration(value)


def parse_fraction(value: Any) -> Any:
    """A part of 1 from `1%` or `0.01`."""
    if isinstance(value, str):
        number = value.strip().removesuffix("%")
        try:
            return float(number) / (100 if value.strip().endswith("%") else 1)
        except ValueError:
            raise ConfigError(f"{value!r} is no fraction; write it as 1% or 0.01") from None
    return value


def _parse(value: Any, units: Mapping[str, float], ending: str, kind: str, example: str) -> Any:
    if not isinstance(value, str):
        return value
    match = re.fullmatch(rf"\s*(-?[0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]+){ending}\s*", value.lower().replace("µ", "u"))
    try:
        if match is not None and match[2] in units:
            return float(match[1]) * units[match[2]]
    except ValueError:
        pass
    raise ConfigError(
        f"{value!r} is no {kind}; write it as a number with a unit ({', '.join(units)}), such as {example}"
    )


Bandwidth = Annotated[float, BeforeValidator(parse_bandwidth)]
"""Bits per second."""

Duration = Annotated[float, BeforeValidator(parse_duration)]
"""Seconds."""

Seconds = Annotated[float, BeforeValidator(parse_seconds)]
"""For fields whose names end in `_seconds`: also `30s`."""

Fraction = Annotated[float, BeforeValidator(parse_fraction)]
"""0 to 1."""


def format_bandwidth(bits_per_second: float) -> str:
    """`10mbit`; `parse_bandwidth` reads it back."""
    return _format(bits_per_second, _BANDWIDTHS)


def format_duration(seconds: float) -> str:
    """`5ms`; `parse_duration` reads it back."""
    return _format(seconds, _DURATIONS)


def _format(value: float, units: Mapping[str, float]) -> str:
    unit = next((unit for unit, size in units.items() if value >= size), list(units)[-1])
    if value == 0:
        unit = next(iter(units))
    return f"{value / units[unit]:.10g}{unit}"
