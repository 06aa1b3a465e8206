"""Both sides show that they know the run's token, which itself never travels.

    await greet_member(connection, token, run="r")              # the coordinator
    run = await greet_coordinator(connection, token, run=None)   # a member

    member                                         coordinator
      knock      protocol, nonce          ──────>
                                          <──────  challenge   run, nonce
      proof      HMAC("member", ...)      ──────>
                                          <──────  proof       HMAC("coordinator", ...)   or   refusal

An HMAC-SHA256 with the token as its key covers the side that speaks, the run's name and both nonces, so nothing that
was recorded is of any use: not later, not in another run, not sent back to where it came from.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

from minga.errors import ConfigError, ProtocolError, Refused
from minga.membership.protocol import Connection
from minga.membership.strict import build, shown

__all__ = ["PROTOCOL", "check_token", "greet_coordinator", "greet_member", "new_token", "proof"]

PROTOCOL = 1
_SHORTEST_TOKEN = 16
_NONCE_CHARACTERS = 64

Side = Literal["member", "coordinator"]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class _Knock:
    protocol: int
    nonce: str


@dataclass(frozen=True, kw_only=True)
class _Challenge:
    run: str
    nonce: str


@dataclass(frozen=True, kw_only=True)
class _Proof:
    proof: str


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_hex(32)


def check_token(token: str) -> str:
    """A token as it is, if it is long enough: who records a greeting can try short ones at leisure."""
    if len(token) < _SHORTEST_TOKEN:
        raise ConfigError(
            f"a token of {len(token)} characters can be guessed; give {_SHORTEST_TOKEN} or more, as printed by "
            'python -c "import secrets; print(secrets.token_hex(32))"'
        )
    return token


def proof(token: str, side: Side, run: str, member_nonce: str, coordinator_nonce: str) -> str:
    """What only somebody who knows the token can say, now, about this run."""
    parts = [part.encode() for part in ("minga membership", str(PROTOCOL), side, run, member_nonce, coordinator_nonce)]
    # With its length before each part, no two lists of parts give the same text.
    text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.new(token.encode(), text, hashlib.sha256).hexdigest()


async def greet_member(connection: Connection, token: str, run: str) -> None:
    """The coordinator's side; `ProtocolError` with the reason if the other side may not come in."""
    knock = _parse(_Knock, await connection.receive(), "knock")
    if knock.protocol != PROTOCOL:
        reason = f"it speaks protocol {knock.protocol}, this is {PROTOCOL}: install the same version of Minga on both"
        raise _refuse(connection, reason)
    _check_nonce(knock.nonce)
    nonce = secrets.token_hex(_NONCE_CHARACTERS // 2)
    connection.send({"kind": "challenge", **asdict(_Challenge(run=run, nonce=nonce))})
    theirs = _parse(_Proof, await connection.receive(), "proof").proof
    expected = proof(token, "member", run, knock.nonce, nonce)
    if not hmac.compare_digest(expected.encode(), theirs.encode()):
        raise _refuse(connection, f"its token is not that of the run {run}")
    connection.send({"kind": "proof", **asdict(_Proof(proof=proof(token, "coordinator", run, knock.nonce, nonce)))})


async def greet_coordinator(connection: Connection, token: str, run: str | None) -> str:
    """The member's side; the run's name. `Refused` if the coordinator says no, which is not yet known to be it."""
    nonce = secrets.token_hex(_NONCE_CHARACTERS // 2)
    connection.send({"kind": "knock", **asdict(_Knock(protocol=PROTOCOL, nonce=nonce))})
    challenge = _parse(_Challenge, await connection.receive(), "challenge")
    _check_nonce(challenge.nonce)
    if run is not None and challenge.run != run:
        raise Refused(f"this is the coordinator of the run {challenge.run}, not of {run}; look at address and port")
    ours = proof(token, "member", challenge.run, nonce, challenge.nonce)
    connection.send({"kind": "proof", **asdict(_Proof(proof=ours))})
    theirs = _parse(_Proof, await connection.receive(), "proof").proof
    expected = proof(token, "coordinator", challenge.run, nonce, challenge.nonce)
    if not hmac.compare_digest(expected.encode(), theirs.encode()):
        raise ProtocolError("the other side does not know the run's token: it is not the coordinator")
    return challenge.run


def _parse(cls: type[T], table: dict[str, Any], kind: str) -> T:
    if table.get("kind") == "refusal" and type(table.get("reason")) is str:
        raise Refused(shown(table["reason"]) if not table["reason"].isprintable() else table["reason"][:500])
    if table.get("kind") != kind:
        raise ProtocolError(f"a greeting without {kind!r}: {shown(table)}")
    return build(cls, {key: value for key, value in table.items() if key != "kind"}, kind)


def _check_nonce(nonce: str) -> None:
    if len(nonce) != _NONCE_CHARACTERS or not set(nonce) <= set("0123456789abcdef"):
        raise ProtocolError(f"a nonce should be {_NONCE_CHARACTERS} hexadecimal digits, not {shown(nonce)}")


def _refuse(connection: Connection, reason: str) -> ProtocolError:
    connection.send({"kind": "refusal", "reason": f"refused: {reason}"})
    return ProtocolError(reason)
