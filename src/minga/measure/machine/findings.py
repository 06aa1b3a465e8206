"""What was found on a machine, with a remedy for whatever is not ok.

    make_finding("data", "disk", "limited", "0.2 GB free", "free some space", free_bytes=200_000_000)

The values that come last are for programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["MachineFinding", "State", "first_line", "make_finding", "size"]

State = Literal["ok", "missing", "limited", "unknown"]


@dataclass(frozen=True, kw_only=True)
class MachineFinding:
    """One thing that was looked at."""

    topic: str
    """What it belongs to; findings of one topic are shown together."""

    name: str
    """What was looked at."""

    state: State
    """Whether it is there."""

    found: str
    """What was found, in words."""

    remedy: str = ""
    """What to do about it; empty when ok."""

    needed: bool = False
    """A local run can't do without it."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """What was found as numbers and names, for programs."""

    def __post_init__(self) -> None:
        assert (self.state == "ok") == (not self.remedy), f"{self.name}: a remedy belongs to what is not ok"


def make_finding(
    topic: str, name: str, state: State, text: str, remedy: str = "", /, *, needed: bool = False, **values: Any
) -> MachineFinding:
    return MachineFinding(topic=topic, name=name, state=state, found=text, remedy=remedy, needed=needed, values=values)


def first_line(message: object) -> str:
    """Libraries explain at length; the first line says what it is."""
    return next(iter(str(message).strip().splitlines()), type(message).__name__)


def size(nbytes: float) -> str:
    return f"{nbytes / 1e9:.1f} GB"
