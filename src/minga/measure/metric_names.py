"""What the name of a metric says, where nothing else is known: which one stands for all, which way is better."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["is_share", "lower_by_name", "main_metric"]

_LOW = ("loss", "error", "perplexity", "mse", "mae", "rmse")
_SHARES = ("accuracy",)


def main_metric(names: Iterable[str], declared: str | None = None) -> str | None:
    """The one that stands for all: as declared, else the first that is not the loss, in the order of the workload."""
    known = list(names)
    if declared in known:
        return declared
    return next((name for name in known if name != "loss"), known[0] if known else None)


def lower_by_name(name: str) -> bool:
    """Whether less is better."""
    return name.lower().endswith(_LOW)


def is_share(name: str) -> bool:
    """Whether it is a part of all samples, and shown in percent; F1, ROC AUC and BLEU are usually not."""
    return name.lower().endswith(_SHARES)
