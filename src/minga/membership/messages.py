"""The messages between members and the coordinator, after the greeting.

    message = from_dict({"kind": "heartbeat", "number": 7, "position": {"step": 3, "epoch": 0, "offset": 96}})

A kind of message is a dataclass; on the wire it is a JSON object with the kind's name and the fields.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from minga.errors import ProtocolError
from minga.net.generation import START, Generation, MemberInfo, Position
from minga.net.strict import Count, Flag, Many, Seconds, StrictRecord, Text, parse, shown

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
class Hello(StrictRecord):
    """A member's first message: who it is, and what it has in common with the others."""

    info: MemberInfo
    facts: Annotated[dict[Text, Text], Many] = field(default_factory=dict)
    """Version, hashes of workload and data, settings: they must be the same everywhere."""
    generation: Count = 0
    """The last one it has heard of; 0: it comes as new."""
    formed: Count = 0
    """The last one that it has formed."""
    position: Position = START


@dataclass(frozen=True, kw_only=True)
class Inquiry(StrictRecord):
    """A visitor asks what this run is about, before it says hello or instead of that."""


@dataclass(frozen=True, kw_only=True)
class Description(StrictRecord):
    """What a visitor needs to take part."""

    run: Text
    number: Count
    """A node's number that nobody has at the moment."""
    lines: Annotated[tuple[Text, ...], Many]
    """The experiment, as TOML."""


@dataclass(frozen=True, kw_only=True)
class Handover(StrictRecord):
    """A visitor that has trained on another machine brings what it has written down, or a part of it."""

    id: Text
    number: Count
    """As in its description."""
    boot: Text
    """Of its machine: who has another one has another clock."""
    clock: Seconds
    """What that clock says."""
    packed: Annotated[tuple[Text, ...], Many]
    """Whole lines of JSON: compressed by zlib, in base64, cut up."""
    last: Flag


@dataclass(frozen=True, kw_only=True)
class Received(StrictRecord):
    """The answer to a handover."""


@dataclass(frozen=True, kw_only=True)
class Heartbeat(StrictRecord):
    """A member is alive, and this far."""

    number: Count
    """The answer has the same one."""
    position: Position


@dataclass(frozen=True, kw_only=True)
class Formed(StrictRecord):
    """A member has its connections to all others of a generation."""

    generation: Count


@dataclass(frozen=True, kw_only=True)
class Suspect(StrictRecord):
    """Somebody did not answer."""

    generation: Count
    id: Text
    why: Text
    broken: Flag = False
    """Whether a connection broke or was refused, rather than that no answer came."""
    wrong: Flag = False
    """Whether what it sent was malformed."""


@dataclass(frozen=True, kw_only=True)
class Leave(StrictRecord):
    """A member goes: because the run is done (others go on to their ends), or before that (they re-form)."""

    finished: Flag


@dataclass(frozen=True, kw_only=True)
class Welcome(StrictRecord):
    """A member is known; it takes part from the next announcement on, or still does."""

    heartbeat_seconds: Seconds
    heartbeat_timeout_seconds: Seconds


@dataclass(frozen=True, kw_only=True)
class Alive(StrictRecord):
    """The answer to a heartbeat."""

    number: Count


@dataclass(frozen=True, kw_only=True)
class Announcement(StrictRecord):
    """The next generation."""

    generation: Generation
    position: Position
    """The most advanced that its members have reported (up to a heartbeat ago)."""
    survivors: Annotated[tuple[Text, ...], Many]
    """Ids of those that were in the last formed generation and have its state; nobody: it comes from a checkpoint."""
    reason: Text


@dataclass(frozen=True, kw_only=True)
class Interrupted(StrictRecord):
    """The generation has lost somebody, and the next one can't be formed yet."""

    generation: Count
    reason: Text


@dataclass(frozen=True, kw_only=True)
class Waiting(StrictRecord):
    """Why there is no next generation yet."""

    message: Text


@dataclass(frozen=True, kw_only=True)
class Ended(StrictRecord):
    """The run is over before its end, for everybody: whoever has started it has ended it."""

    reason: Text


@dataclass(frozen=True, kw_only=True)
class Refusal(StrictRecord):
    """The coordinator's no; the connection ends."""

    reason: Text


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
    message: FromMember | FromCoordinator = parse(_KINDS[kind], {k: v for k, v in table.items() if k != "kind"}, kind)
    return message
