"""What an evaluation has found."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Findings"]


@dataclass
class Findings:
    """Of one evaluation, over the whole test set."""

    numbers: dict[str, float] = field(default_factory=dict)
    """By metric. The first that is not the loss stands for all, where one number must."""

    tables: dict[str, list[list[float]]] = field(default_factory=dict)
    """Of metrics that are more than a number, such as a confusion matrix."""

    lower_is_better: list[str] = field(default_factory=list)
    """Of which metrics."""

    def take(self, other: Findings) -> None:
        """Have what another has."""
        self.numbers.update(other.numbers)
        self.tables.update(other.tables)
        self.lower_is_better = other.lower_is_better
