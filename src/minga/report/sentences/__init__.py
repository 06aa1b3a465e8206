"""What the figures show, in sentences that are computed from the same data.

for sentence in sentences(dataset, target):
    print(sentence)
"""

from __future__ import annotations

from minga.report.dataset.groups import Dataset
from minga.report.dataset.targets import Target
from minga.report.sentences.outcome import energy, failures, links, opening, quality, simulations, target_times
from minga.report.sentences.speed import best_strategies, speeds, stragglers

__all__ = ["sentences"]


def sentences(dataset: Dataset, target: Target | None) -> list[str]:
    """The most important first."""
    return [
        *opening(dataset),
        *speeds(dataset),
        *best_strategies(dataset),
        *stragglers(dataset),
        *quality(dataset),
        *target_times(dataset, target),
        *energy(dataset),
        *simulations(dataset),
        *links(dataset),
        *failures(dataset),
    ]
