"""What members and the coordinator say to each other, after the greeting.

    message = from_dict({"kind": "heartbeat", "number": 7, "position": {"step": 3, "epoch": 0, "offset": 96}})

A kind of message is a dataclass; on the wire it is a JSON object with the kind's name and the fields.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from minga.errors import ProtocolError
from minga.net.generation import START, Generation, MemberInfo, Position
from minga.membership.strict import build, shown

__all__ = [
    "Alive",
    "Announcement",
    "Description",
    "Ended",
    "Formed",
    "FromCoordinator",
    "FromMember",
    "Handover",
    "Heartbeat",
    "Hello",
    "Inquiry",
    "Interrupted",
    "Leave",
    "Received",
    "Refusal",
    "Suspect",
    "Waiting",
    "Welcome",
    "from_dict",
    "to_dict",
]


@dataclass(frozen=True, kw_only=True)
class Hello:
    """A member's first word: who it is, and what it has in common with the others."""

    info: MemberInfo
    facts: dict[str, str] = field(default_factory=dict)
    """Version, hashes of workload and data, settings: they must be the same everywhere."""
    generation: int = 0
    """The last one it has heard of; 0: it comes as new."""
    formed: int = 0
    """The last one that it has formed."""
    position: Position = START


@dataclass(frozen=True, kw_only=True)
class Inquiry:
    """A visitor asks what this run is about, before it says hello or instead of that."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a visitor needs to take part."""

    run: str
    number: int
    """A node's number that nobody has at the moment."""
    lines: tuple[str, ...]
    """The experiment, as TOML."""


@dataclass(frozen=True, kw_only=True)
class Handover:
    """A visitor that has trained on another machine brings what it has written down, or a part of it."""

    id: str
    number: int
    """As in its description."""
    boot: str
    """Of its machine: who has another one has another clock."""
    clock: float
    """What that clock says."""
    packed: tuple[str, ...]
    """Whole lines of JSON: compressed by zlib, in base64, cut up."""
    last: bool


@dataclass(frozen=True, kw_only=True)
class Received:
    """The answer to a handover."""


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """A member is alive, and this far."""

    number: int
    """The answer has the same one."""
    position: Position


@dataclass(frozen=True, kw_only=True)
class Formed:
    """A member has its connections to all others of a generation."""

    generation: int


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """Somebody did not answer."""

    generation: int
    id: str
    why: str
    broken: bool = False
    """Whether a connection broke or was refused, rather than that no answer came."""
    wrong: bool = False
    """Whether it sent what can't be."""


@dataclass(frozen=True, kw_only=True)
class Leave:
    """A member goes: because the run is done (others go on to their ends), or before that (they form anew)."""

    finished: bool


@dataclass(frozen=True, kw_only=True)
class Welcome:
    """A member is known; it takes part from the next announcement on, or still does."""

    heartbeat_seconds: float
    heartbeat_timeout_seconds: float


@dataclass(frozen=True, kw_only=True)
class Alive:
    """The answer to a heartbeat."""

    number: int


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """The next generation."""

    generation: Generation
    position: Position
    """The most advanced that its members have reported (up to a heartbeat ago)."""
    survivors: tuple[str, ...]
    """Ids of those that were in the last formed generation and have its state; nobody: it comes from a checkpoint."""
    reason: str


@dataclass(frozen=True, kw_only=True)
class Interrupted:
    """The generation has lost somebody, and the next one can't be formed yet."""

    generation: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Why there is no next generation yet."""

    message: str


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The run is over before its end, for everybody: whoever has started it has ended it."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """The coordinator's no; the connection ends."""

    reason: str


FromMember = Hello | Inquiry | Handover | Heartbeat | Formed | Suspect | Leave
FromCoordinator = Welcome | Description | Received | Alive | Announcement | Interrupted | Waiting | Ended | Refusal

_KINDS: dict[str, type[Any]] = {cls.__name__.lower(): cls for cls in (*FromMember.__args__, *FromCoordinator.__args__)}


def to_dict(message: FromMember | FromCoordinator) -> dict[str, Any]:
    return {"kind": type(message).__name__.lower(), **asdict(message)}


def from_dict(table: dict[str, Any]) -> FromMember | FromCoordinator:
    """Strict: an unknown kind, other fields or types are a `ProtocolError`."""
    kind = table.get("kind")
    if type(kind) is not str or kind not in _KINDS:
        raise ProtocolError(f"unknown kind of message {shown(kind)}; known: {', '.join(_KINDS)}")
    message: FromMember | FromCoordinator = build(_KINDS[kind], {k: v for k, v in table.items() if k != "kind"}, kind)
    return message
