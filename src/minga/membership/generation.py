"""Who is in the run: an ordered list of members with a number. When somebody leaves or comes, the next number begins.

generation = Generation(number=3, members=(MemberInfo(id="node-0", ...), ...), secret=secrets.token_hex(32))
generation.rank_of("node-0")  # 0: the place in the list
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from minga.errors import ProtocolError

__all__ = ["Generation", "MemberInfo"]

_ROLES = ("worker", "server")
_SECRET_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class MemberInfo:
    """One process of a run."""

    id: str
    """A node's stable name, such as "node-0"; unique in the run."""

    incarnation: str
    """Random hex, new with every process: who comes back from the dead has an old one."""

    address: str
    """Where its data door listens."""

    port: int
    """The data door's port."""

    host: str = "localhost"
    """Name of the host or site, for `Transport.hosts`."""

    role: Literal["worker", "server"] = "worker"
    """Servers hold parameters instead of training."""

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, content: object) -> MemberInfo:
        """Strict: what comes from a network is not trusted to have the right form."""
        fields = _exactly(content, {field.name for field in dataclasses.fields(cls)}, "a member")
        for name in ("id", "incarnation", "address", "host", "role"):
            _check(fields[name], str, f"a member's {name}")
        if not 0 < _check(fields["port"], int, "a member's port") < 1 << 16:
            raise ProtocolError(f"a member's port should be between 1 and 65535, not {fields['port']}")
        if fields["role"] not in _ROLES:
            raise ProtocolError(f"a member's role should be one of {', '.join(_ROLES)}, not {fields['role']!r}")
        return cls(**fields)


@dataclass(frozen=True, kw_only=True)
class Generation:
    """An epoch of membership."""

    number: int
    """Grows with every change."""

    members: tuple[MemberInfo, ...]
    """A member's rank is its place here: workers first, then servers."""

    secret: str
    """Hex of 32 bytes, new for every generation: who connects to a data door must know it."""

    def rank_of(self, id: str) -> int:
        for rank, member in enumerate(self.members):
            if member.id == id:
                return rank
        known = ", ".join(member.id for member in self.members)
        raise ProtocolError(f"{id!r} is not a member of generation {self.number}; members: {known or 'none'}")

    def to_dict(self) -> dict[str, Any]:
        members = [member.to_dict() for member in self.members]
        return {"number": self.number, "members": members, "secret": self.secret}

    @classmethod
    def from_dict(cls, content: object) -> Generation:
        """Strict, as `MemberInfo.from_dict`."""
        fields = _exactly(content, {"number", "members", "secret"}, "a generation")
        number = _check(fields["number"], int, "a generation's number")
        if number < 0:
            raise ProtocolError(f"a generation's number should be 0 or more, not {number}")
        listed = _check(fields["members"], list, "a generation's members")
        members = tuple(MemberInfo.from_dict(each) for each in listed)
        if len({member.id for member in members}) != len(members):
            raise ProtocolError(f"generation {number} has members of the same name")
        secret = _check(fields["secret"], str, "a generation's secret")
        try:
            length = len(bytes.fromhex(secret))
        except ValueError:
            length = 0
        if length != _SECRET_BYTES:
            raise ProtocolError(f"a generation's secret should be {_SECRET_BYTES} bytes in hex")
        return cls(number=number, members=members, secret=secret)


def _exactly(content: object, names: set[str], what: str) -> Mapping[str, Any]:
    if not isinstance(content, dict):
        raise ProtocolError(f"{what} should be an object, not {type(content).__name__}")
    if content.keys() != names:
        unknown, missing = sorted(content.keys() - names), sorted(names - content.keys())
        raise ProtocolError(f"{what} has unknown keys {unknown} and lacks {missing}")
    return content


def _check(value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ProtocolError(f"{what} should be of type {kind.__name__}, not {type(value).__name__}")
    return value
