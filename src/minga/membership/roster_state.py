"""What a restarted coordinator must know of the roster.

state = RosterState.from_dict(json.loads(text))
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Self

from minga.net.generation import START, Generation, Position
from minga.membership.strict import build

__all__ = ["RosterState"]


@dataclass(kw_only=True)
class RosterState:
    """The part of the roster that outlives its process."""

    number: int = 0
    """Of the last announced generation."""
    generation: Generation | None = None
    reason: str = ""
    """Of the last announcement."""
    formed: bool = False
    """Whether all members have formed the announced generation."""
    interrupted: bool = False
    """Whether it has lost somebody since, so that there must be another one."""
    formed_members: dict[str, str] = field(default_factory=dict)
    """The last formed generation: the id of each incarnation."""
    ended: set[str] = field(default_factory=set)
    """Incarnations of these that are known to have ended, or have been told that they are out."""
    out: dict[str, str] = field(default_factory=dict)
    """Incarnations that are refused, with the reason."""
    banned: dict[str, str] = field(default_factory=dict)
    """Ids that are out for good, and why: what can't be would come again."""
    finished: set[str] = field(default_factory=set)
    """Ids of members that have come to the end of the run."""
    facts: dict[str, str] | None = None
    position: Position = START

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ended": sorted(self.ended), "finished": sorted(self.finished)}

    @classmethod
    def from_dict(cls, table: object) -> Self:
        """Strict, like everything that is read."""
        read = build(_Read, table, "roster")
        return cls(**{**vars(read), "ended": set(read.ended), "finished": set(read.finished)})


@dataclass(kw_only=True)
class _Read:
    """The same in JSON's types."""

    number: int
    generation: Generation | None
    reason: str
    formed: bool
    interrupted: bool
    formed_members: dict[str, str]
    ended: tuple[str, ...]
    out: dict[str, str]
    banned: dict[str, str]
    finished: tuple[str, ...]
    facts: dict[str, str] | None
    position: Position
