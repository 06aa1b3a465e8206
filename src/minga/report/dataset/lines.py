"""Groups as lines over the number of nodes: a line for each combination of all other settings.

for line in lines_over_nodes(dataset):
    line.label, sorted(line.groups)         # "ring, 10 Mbit/s", [1, 2, 4]
"""

from __future__ import annotations

from dataclasses import dataclass

from minga.report.dataset.groups import Dataset, Group

__all__ = ["NodesLine", "lines_over_nodes"]


@dataclass(frozen=True)
class NodesLine:
    """Groups that differ only in the number of nodes; the one on one node may be shared between lines."""

    label: str
    groups: dict[int, Group]

    @property
    def largest(self) -> Group:
        return self.groups[max(self.groups)]

    @property
    def simulated(self) -> bool:
        return self.largest.simulated


def lines_over_nodes(dataset: Dataset) -> list[NodesLine]:
    """Only those with more than one node; in the order of the groups."""
    members: dict[str, dict[int, Group]] = {}
    for group in dataset.groups:
        if group.nodes > 1:
            members.setdefault(group.line, {}).setdefault(group.nodes, group)
    lines = []
    for label, groups in members.items():
        baseline = dataset.baseline(next(iter(groups.values())))
        lines.append(NodesLine(label, {1: baseline, **groups} if baseline else groups))
    return lines
