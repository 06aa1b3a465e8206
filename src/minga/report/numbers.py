"""Numbers as people read them."""

from __future__ import annotations

from minga.measure.metric_names import is_share

__all__ = ["count", "duration", "estimate_mark", "shown_metric", "size"]


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size(nbytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def estimate_mark(estimated: bool) -> str:
    """What is written behind every number that is an estimate."""
    return ", estimated" if estimated else ""


def shown_metric(metric: str | None, value: float | None, *, short: bool = False) -> str:
    """A metric's value: in percent where it is a part of all samples."""
    if metric is None or value is None:
        return "-"
    if is_share(metric):
        return f"{100 * value:.4g} %" if short else f"{100 * value:.1f} %"
    return f"{value:.4g}"
