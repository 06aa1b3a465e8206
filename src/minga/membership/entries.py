"""What the roster notes of each member, and what it wants to be sent.

Tell(link=3, message=Waiting(message="1 of 2 members are here"))
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from minga.net.generation import START, MemberInfo, Position
from minga.membership.messages import FromCoordinator

__all__ = ["Close", "Entry", "Tell", "listed"]


@dataclass(frozen=True)
class Tell:
    """Send a message."""

    link: int
    message: FromCoordinator


@dataclass(frozen=True)
class Close:
    """Send a last message, if there is one, and end the connection; tell the roster if the other side did, too."""

    link: int
    message: FromCoordinator | None = None


@dataclass
class Entry:
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
