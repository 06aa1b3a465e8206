"""What the roster knows: of each member, and what a restarted coordinator must know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from minga.net.generation import START, Generation, MemberInfo, Position
from minga.net.strict import Count, Flag, StrictRecord, Text

__all__ = ["RosterEntry", "RosterState", "listed"]


@dataclass(kw_only=True)
class RosterState(StrictRecord):
    """The part of the roster that outlives its process."""

    number: Count = 0
    """Of the last announced generation."""
    generation: Generation | None = None
    reason: Text = ""
    """Of the last announcement."""
    formed: Flag = False
    """Whether all members have formed the announced generation."""
    interrupted: Flag = False
    """Whether it has lost somebody since, so that there must be another one."""
    formed_members: dict[Text, Text] = field(default_factory=dict)
    """The last formed generation: the id of each incarnation."""
    ended: set[Text] = field(default_factory=set)
    """Incarnations of these that are known to have ended, or that know that they are out."""
    out: dict[Text, Text] = field(default_factory=dict)
    """Incarnations that are refused, with the reason."""
    banned: dict[Text, Text] = field(default_factory=dict)
    """Ids that are out for good, and why: what they sent was malformed, and would be again."""
    finished: set[Text] = field(default_factory=set)
    """Ids of members that have come to the end of the run."""
    facts: dict[Text, Text] | None = None
    position: Position = START


@dataclass
class RosterEntry:
    """What is known of one member."""

    info: MemberInfo
    link: int | None
    deadline: float
    """When it is out, unless it is heard of before."""
    came: float
    progressed: float
    position: Position = START
    formed: bool = False
    lost: str = ""
    """Why it does not count any more; until the next generation is announced it may come back."""
    ended: bool = False
    """Whether its connection has ended, so that it need not be feared to go on somewhere unseen."""
    restored: bool = False
    """Whether it is known from the state file only."""


def listed(ids: Iterable[str]) -> str:
    """Names in a sentence; not a thousand of them."""
    names = list(ids)
    shown = ", ".join(names[:8]) or "nobody"
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"
