"""Metrics as people read them: which one stands for all, which way is better, what is a part of 1."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["is_share", "main_metric", "shown_metric"]

_SHARES = ("accuracy",)


def is_share(metric: str) -> bool:
    """Whether it is a part of all samples, and shown in percent; F1, ROC AUC and BLEU are usually not."""
    return metric.lower().endswith(_SHARES)


def main_metric(names: Iterable[str]) -> str | None:
    """The one that stands for all: the first that is not the loss, in the order in which evaluations tell them."""
    known = list(names)
    return next((name for name in known if name != "loss"), known[0] if known else None)


def shown_metric(metric: str | None, value: float | None, *, short: bool = False) -> str:
    if metric is None or value is None:
        return "-"
    if is_share(metric):
        return f"{100 * value:.4g} %" if short else f"{100 * value:.1f} %"
    return f"{value:.4g}"
