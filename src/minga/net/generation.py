"""Who is in the run: an ordered list of members with a number.

    info = MemberInfo(id="node-0", incarnation=new_incarnation(), address="127.0.0.1", port=40123)
    generation = Generation(number=1, members=(info,), secret=new_secret())
    generation.rank_of("node-0")  # 0

A generation is an epoch of membership. Within one the ranks stay as they are; when somebody goes or comes, the
coordinator announces the next one.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, Strict, StringConstraints, model_validator

from minga.net.strict import Count, Many, StrictRecord, Text

__all__ = ["START", "Generation", "MemberInfo", "Position", "new_incarnation", "new_secret"]


def new_incarnation() -> str:
    """A name for this process that no other has had."""
    return secrets.token_hex(8)


def new_secret() -> str:
    """What the members of one generation know, and nobody else."""
    return secrets.token_hex(32)


@dataclass(frozen=True, kw_only=True)
class Position(StrictRecord):
    """Where in the data a run is."""

    step: Count = 0
    epoch: Count = 0
    offset: Count = 0

    def further(self, other: Position) -> Position:
        """The more advanced of two."""
        return max(self, other, key=lambda position: (position.step, position.epoch, position.offset))


START = Position()


@dataclass(frozen=True, kw_only=True)
class MemberInfo(StrictRecord):
    """A process that takes part."""

    id: Annotated[str, Strict(), StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    """Stable name of a node, such as "node-0"; unique in the run."""
    incarnation: Annotated[str, Strict(), StringConstraints(pattern=r"^[0-9a-f]{8,64}$")]
    """Random hex, new with every process: a zombie has an old one."""
    address: Annotated[str, Strict(), StringConstraints(pattern=r"^[A-Za-z0-9.:%_-]{1,255}$")]
    """Where it listens for data."""
    port: Annotated[int, Strict(), Field(ge=1, le=65535)]
    host: Text = "localhost"
    """Name of the host or site, for `Transport.hosts`."""
    role: Literal["worker", "server"] = "worker"


@dataclass(frozen=True, kw_only=True)
class Generation(StrictRecord):
    """An epoch of membership."""

    number: Count
    members: Annotated[tuple[MemberInfo, ...], Many]
    """Rank = place in this tuple; workers first, then servers."""
    secret: Annotated[str, Strict(), StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    """Hex, 32 bytes, new for every generation: who connects to a member must know it."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        ids, roles = [member.id for member in self.members], [member.role for member in self.members]
        if self.number < 1 or not ids:
            raise ValueError("numbers begin at 1, and there is at least one member")
        if len(set(ids)) < len(ids):
            raise ValueError("two members have the same id")
        if roles != sorted(roles, reverse=True):
            raise ValueError("workers come first, then servers")
        return self

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
