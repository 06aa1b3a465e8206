"""Who is in the run: an ordered list of members with a number.

    info = MemberInfo(id="node-0", incarnation=new_incarnation(), address="127.0.0.1", port=40123)
    generation = Generation(number=1, members=(info,), secret=secrets.token_hex(32))
    generation.rank_of("node-0")  # 0

A generation is an epoch of membership. Within one the ranks stay as they are; when somebody goes or comes, the
coordinator announces the next one.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from minga.errors import ProtocolError
from minga.membership.strict import build, shown

__all__ = ["START", "Generation", "MemberInfo", "Position", "new_incarnation", "new_secret"]

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_INCARNATION = re.compile(r"[0-9a-f]{8,64}")
_SECRET = re.compile(r"[0-9a-f]{64}")
_ADDRESS = re.compile(r"[A-Za-z0-9.:%_-]{1,255}")


def new_incarnation() -> str:
    """A name for this process that no other has had."""
    return secrets.token_hex(8)


def new_secret() -> str:
    """What the members of one generation know, and nobody else."""
    return secrets.token_hex(32)


@dataclass(frozen=True, kw_only=True)
class Position:
    """Where in the data a run is."""

    step: int = 0
    epoch: int = 0
    offset: int = 0

    @classmethod
    def from_dict(cls, table: object) -> Self:
        return build(cls, table, "position")

    def further(self, other: Position) -> Position:
        """The more advanced of two."""
        return max(self, other, key=lambda position: (position.step, position.epoch, position.offset))


START = Position()


@dataclass(frozen=True, kw_only=True)
class MemberInfo:
    """A process that takes part."""

    id: str
    """Stable name of a node, such as "node-0"; unique in the run."""
    incarnation: str
    """Random hex, new with every process: a zombie has an old one."""
    address: str
    """Where its data door listens."""
    port: int
    host: str = "localhost"
    """Name of the host or site, for `Transport.hosts`."""
    role: Literal["worker", "server"] = "worker"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, table: object) -> Self:
        """Strict: anything that is not exactly a member's description is a `ProtocolError`."""
        info = build(cls, table, "member")
        for name, pattern in (("id", _ID), ("incarnation", _INCARNATION), ("address", _ADDRESS)):
            if not pattern.fullmatch(getattr(info, name)):
                raise ProtocolError(
                    f"member.{name} can't be {shown(getattr(info, name))}: it must match {pattern.pattern}"
                )
        if not 1 <= info.port <= 65535:
            raise ProtocolError(f"member.port can't be {info.port}: ports are 1 to 65535")
        return info


@dataclass(frozen=True, kw_only=True)
class Generation:
    """An epoch of membership."""

    number: int
    members: tuple[MemberInfo, ...]
    """Rank = place in this tuple; workers first, then servers."""
    secret: str
    """Hex, 32 bytes, new for every generation: who connects to a data door must know it."""

    def rank_of(self, id: str) -> int:
        """The rank of a member; `KeyError` for somebody who is not in this generation."""
        for rank, member in enumerate(self.members):
            if member.id == id:
                return rank
        raise KeyError(f"{id!r} is not in generation {self.number}: {', '.join(member.id for member in self.members)}")

    @property
    def workers(self) -> int:
        """How many of the ranks, the first ones, are workers."""
        return sum(member.role == "worker" for member in self.members)

    def to_dict(self) -> dict[str, Any]:
        return {"number": self.number, "members": [m.to_dict() for m in self.members], "secret": self.secret}

    @classmethod
    def from_dict(cls, table: object) -> Self:
        """Strict: unknown or missing keys, wrong types or orders are a `ProtocolError`."""
        generation = build(cls, table, "generation")
        ids, roles = [member.id for member in generation.members], [member.role for member in generation.members]
        if generation.number < 1 or not ids:
            raise ProtocolError("generation: numbers begin at 1, and there is at least one member")
        if len(set(ids)) < len(ids):
            raise ProtocolError("generation: two members have the same id")
        if roles != sorted(roles, reverse=True):
            raise ProtocolError("generation: workers come first, then servers")
        if not _SECRET.fullmatch(generation.secret):
            raise ProtocolError("generation: the secret should be 64 hexadecimal digits")
        return generation
