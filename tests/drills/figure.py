"""The drill as a picture: for each fault how long nobody trained, and how long that may take.

svg = draw(document)     # what `drills.json` has
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minga.report.figures.style import COLORS, fitted, house_style, new_figure, to_svg

__all__ = ["draw"]

_OURS, _THEIRS, _BROKEN = COLORS[0], "#9A9A9A", COLORS[1]
_ROW_INCHES = 0.3
_TEXT_SECONDS = 2.2


def draw(document: Mapping[str, Any]) -> str:
    """As SVG; faults that were not tried are left out. `UsageError` without matplotlib."""
    faults = [(name, fault) for name, fault in document["faults"].items() if _times(document, name)]
    with house_style():
        figure, [[axes]] = new_figure(height=_ROW_INCHES * len(faults), extra=0.9)
        for row, (name, fault) in enumerate(faults):
            limit, times = fault["promised"].get("recovery_seconds"), _times(document, name)
            own = [outcome for outcome in document["outcomes"] if outcome["fault"] == name]
            broken = any(outcome["broken"] for outcome in own)
            color = _THEIRS if limit is None else _BROKEN if broken else _OURS
            axes.barh(row, max(times), height=0.55, color=color)
            axes.plot(times, [row] * len(times), "|", color="white", markersize=7)
            if limit is not None:
                axes.plot([limit, limit], [row - 0.4, row + 0.4], color="#333333", linewidth=1.4)
            # Beyond the line, where it would be written over it.
            beside = limit if limit is not None and 0 <= limit - max(times) < _TEXT_SECONDS else max(times)
            axes.annotate(f"{max(times):.1f} s", (beside, row), (4, 0), textcoords="offset points", va="center")
        axes.set_yticks(range(len(faults)), [fitted(fault["words"], 60) for _, fault in faults])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("seconds without a step, worst of all trials (white: each trial; black line: at most promised)")
        return to_svg(figure, "chaos")


def _times(document: Mapping[str, Any], name: str) -> list[float]:
    return [
        outcome["recovery_seconds"]
        for outcome in document["outcomes"]
        if outcome["fault"] == name and outcome["survived"] and outcome["recovery_seconds"] is not None
    ]
