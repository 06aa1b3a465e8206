"""What people call a cell: `4 nodes, 10mbit, native`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minga.base.spec import Named, describe
from minga.base.units import format_bandwidth, format_duration

__all__ = ["label_of", "text_of"]


def label_of(values: Mapping[str, Any]) -> str:
    """A few words from paths and values."""
    return ", ".join(_words(path, value) for path, value in values.items())


def _words(path: str, value: Any) -> str:
    text = text_of(value)
    match path:
        case "cluster.nodes":
            return f"{text} node" if value == 1 else f"{text} nodes"
        case "strategy" | "workload":
            return text
        case "cluster.network.bandwidth":
            return text if isinstance(value, str) else format_bandwidth(value)
        case "cluster.network.delay":
            return f"{text if isinstance(value, str) else format_duration(value)} delay"
        case "batch.policy":
            return {"per_node": "batch of each node", "total": "batch of all nodes"}.get(text, text)
    section, _, rest = path.partition(".")
    name = rest if section in ("cluster", "training") else path
    return f"{name.replace('.', ' ').replace('_', ' ')} {text}"


def text_of(value: Any) -> str:
    """A value as people write it in one line."""
    if isinstance(value, Named):
        return describe(value)
    if isinstance(value, Mapping):  # a strategy as a table, in the words of a string
        fields = ",".join(f"{key}={text_of(item)}" for key, item in value.items() if key != "name")
        name = str(value.get("name", ""))
        return f"{name}:{fields}" if name and fields else name or fields
    return ",".join(map(text_of, value)) if isinstance(value, list | tuple) else str(value)
