"""Parts of sentences: groups, ratios, lists."""

from __future__ import annotations

from collections.abc import Sequence

from minga.report.dataset.groups import Dataset, RunGroup
from minga.report.dataset.settings import shown_value

__all__ = ["between", "count", "joined", "ratio", "strategy_name", "subject", "verb"]


def subject(dataset: Dataset, group: RunGroup) -> str:
    """`4 nodes at 10 Mbit/s with ring (batch 32)`: what differs between the groups, as part of a sentence."""
    if group.environment is not None:
        return f"“{group.label}”"
    words = count(group.nodes, "node")
    # Where nothing else differs, a bandwidth that all have in common is worth a word too.
    differs = "cluster.network.bandwidth" in dataset.telling
    common = group.bandwidth is not None and dataset.telling in ([], ["cluster.nodes"])
    if (differs and (group.nodes > 1 or group.bandwidth is not None)) or common:
        places = {"loopback": "on loopback", "unlimited": "on an unlimited network"}
        place = places.get(group.bandwidth_text, f"at {group.bandwidth_text}")
        words += f" {place}"
    if "strategy" in dataset.telling and not (group.nodes == 1 and group.strategy == "single"):
        words += f" with {strategy_name(group)}"
    return f"{words} ({group.rest})" if group.rest else words


def strategy_name(group: RunGroup) -> str:
    return shown_value("strategy", group.strategy)


def verb(group: RunGroup, one: str, many: str) -> str:
    return one if group.nodes == 1 or group.environment is not None else many


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def between(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


def joined(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def ratio(value: float) -> str:
    """`3.1x`; near one with two digits, so that nothing is `1.0x faster`."""
    if value < 1.2:
        return f"{value:.2f}x"
    return f"{value:.1f}x" if value < 20 else f"{value:.0f}x"
