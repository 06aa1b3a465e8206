"""What was asked of links, and what was measured of them: `network.json` of each run, medians over repetitions.

for row in links_of(dataset):
    print(row.host, row.direction, row.asked, row.measured)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from minga.report.dataset.groups import Dataset, RunGroup
from minga.report.dataset.statistics import Spread

__all__ = ["LinkRow", "links_of"]


@dataclass(frozen=True)
class LinkRow:
    """One quantity of one host's link."""

    group: RunGroup
    host: str
    quantity: str
    """rate (bits per second) or delay (seconds)"""
    direction: str
    asked: float | None
    measured: float | None
    emulation: str

    @property
    def deviation(self) -> float:
        return self.measured / self.asked - 1 if self.asked and self.measured else 0.0


def links_of(dataset: Dataset) -> list[LinkRow]:
    rows = []
    for group in dataset.groups:
        hosts: dict[str, list[dict[str, Any]]] = {}
        for run in group.runs:
            for link in _links(run.network):
                hosts.setdefault(str(link.get("host")), []).append(link)
        emulation = next((str(run.network.get("emulation", "")) for run in group.runs if run.network), "")
        for host, same in hosts.items():
            for quantity, direction, name in (("rate", "up", "up"), ("rate", "down", "down"), ("delay", "", "delay")):
                asked, measured = _median(same, f"{name}_asked"), _median(same, f"{name}_measured")
                if asked or measured:
                    rows.append(LinkRow(group, host, quantity, direction, asked, measured, emulation))
    return rows


def _links(network: dict[str, Any]) -> list[dict[str, Any]]:
    links = network.get("links")
    return [link for link in links if isinstance(link, dict)] if isinstance(links, list) else []


def _median(links: list[dict[str, Any]], name: str) -> float | None:
    spread = Spread.of(link.get(name) for link in links if isinstance(link.get(name), int | float))
    return spread.median if spread else None
