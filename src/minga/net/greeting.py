"""What comes first on every connection: both sides prove that they know the same secret, which itself never travels.

    name = await introduce(socket, key, claim=b"...")                           # who connects
    opening = await hear(socket); accept = await check(socket, opening, key)    # who listens

    caller                                          listener
      OPENING    nonce, claim             ──────>
                                          <──────  CHALLENGE  nonce, name               or   REFUSAL  why
      PROOF      HMAC("caller", ...)      ──────>
                                          <──────  PROOF      HMAC("listener", ...)     or   REFUSAL  why

The claim says what is wanted here and the name what this is; both mean something to their owners only. An HMAC-SHA256
with the secret as its key covers the side that speaks, and all of the opening and of the challenge, so nothing that was
recorded is of any use: not later, not elsewhere, not sent back to where it came from. The listener proves itself last,
so that who does not know the secret gets nothing to try guesses on.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from typing import Literal, NamedTuple

from minga.errors import ConfigError, ProtocolError, Refused
from minga.net.sockets import Socket
from minga.net.strict import shown

__all__ = ["PROTOCOL", "Opening", "check", "check_token", "hear", "introduce", "new_token", "proof", "refusal"]

PROTOCOL = 2
"""What is spoken on all connections: raised with every change of the greeting and of what comes after it."""
_MAGIC = b"minga\n"
_HEAD = struct.Struct(f"!{len(_MAGIC)}sBBH")
"""Magic, protocol, kind, length of what follows."""
_OPENING, _CHALLENGE, _PROOF, _REFUSAL = range(1, 5)
_NAMES = {_OPENING: "an opening", _CHALLENGE: "a challenge", _PROOF: "a proof", _REFUSAL: "a refusal"}
_NONCE_BYTES = _PROOF_BYTES = 32
_LONGEST = 1024
_LONGEST_REASON = 500
_TLS_HANDSHAKE = b"\x16\x03"
_SHORTEST_TOKEN = 16


class Opening(NamedTuple):
    """What a caller has said first."""

    nonce: bytes
    claim: bytes


def new_token() -> str:
    """A run's secret that nobody can guess."""
    return secrets.token_hex(32)


def check_token(token: str) -> str:
    """A token as it is, if it is long enough: who records a greeting can try short ones at leisure."""
    if len(token) < _SHORTEST_TOKEN:
        raise ConfigError(
            f"a token of {len(token)} characters can be guessed; give {_SHORTEST_TOKEN} or more, as printed by "
            'python -c "import secrets; print(secrets.token_hex(32))"'
        )
    return token


async def introduce(socket: Socket, key: bytes, *, claim: bytes = b"", name: str | None = None) -> str:
    """The caller's side; the listener's name. `name`: what it must be, if that is known.

    `Refused` if the other side says no, which is not yet known to be the right one; `ProtocolError` if it is not.
    """
    opening = secrets.token_bytes(_NONCE_BYTES) + claim
    await socket.send_all(_frame(_OPENING, opening))
    challenge = await _receive(socket, _CHALLENGE)
    found = _text(challenge[_NONCE_BYTES:])
    if name is not None and found != name:
        raise Refused(f"this is the coordinator of the run {found}, not of {name}; look at address and port")
    await socket.send_all(_frame(_PROOF, proof(key, "caller", opening, challenge)))
    theirs = await _receive(socket, _PROOF)
    if not hmac.compare_digest(theirs, proof(key, "listener", opening, challenge)):
        raise ProtocolError("the other side could not prove that it knows the secret: it is not who should be there")
    return found


async def hear(socket: Socket) -> Opening:
    """The listener's side, first part: what does the caller claim?"""
    opening = await _receive(socket, _OPENING)
    return Opening(opening[:_NONCE_BYTES], opening[_NONCE_BYTES:])


async def check(socket: Socket, opening: Opening, key: bytes, *, name: str = "", wrong: str) -> bytes:
    """The listener's side, second part; what remains to be sent to the caller, who knows the secret.

    `wrong`: the reason of the refusal if it does not.
    """
    challenge = secrets.token_bytes(_NONCE_BYTES) + name.encode()
    await socket.send_all(_frame(_CHALLENGE, challenge))
    theirs = await _receive(socket, _PROOF)
    said = b"".join(opening)
    if not hmac.compare_digest(theirs, proof(key, "caller", said, challenge)):
        raise Refused(wrong)
    return _frame(_PROOF, proof(key, "listener", said, challenge))


def refusal(reason: str) -> bytes:
    """A listener's no, instead of any of its messages."""
    return _frame(_REFUSAL, reason.encode()[:_LONGEST_REASON])


def proof(key: bytes, side: Literal["caller", "listener"], opening: bytes, challenge: bytes) -> bytes:
    """What only somebody who knows the secret can say, now, about this claim."""
    # With its length before each part, no two lists of parts give the same text.
    parts = (b"minga", bytes([PROTOCOL]), side.encode(), opening, challenge)
    return hmac.new(key, b"".join(len(part).to_bytes(4, "big") + part for part in parts), hashlib.sha256).digest()


def _frame(kind: int, content: bytes) -> bytes:
    assert len(content) <= _LONGEST, f"a greeting of {len(content)} bytes is our own mistake"
    return _HEAD.pack(_MAGIC, PROTOCOL, kind, len(content)) + content


async def _receive(socket: Socket, wanted: int) -> bytes:
    head = await socket.receive(_HEAD.size)
    magic, protocol, kind, length = _HEAD.unpack(head)
    if magic != _MAGIC:
        raise ProtocolError(f"this is no greeting of Minga{_hint(head)}")
    if protocol != PROTOCOL:
        raise Refused(f"it speaks protocol {protocol}, this is {PROTOCOL}: install the same version of Minga on both")
    if length > _LONGEST:
        raise ProtocolError(f"a greeting of {length} bytes, of which at most {_LONGEST} are accepted")
    content = await socket.receive(length)
    if kind == _REFUSAL and wanted != _OPENING:
        raise Refused(_text(content))
    if kind != wanted:
        raise ProtocolError(f"{_NAMES.get(kind, f'a message of kind {kind}')} where {_NAMES[wanted]} was expected")
    if len(content) < _NONCE_BYTES or (wanted == _PROOF and len(content) != _PROOF_BYTES):
        raise ProtocolError(f"{_NAMES[wanted]} of {len(content)} bytes: a nonce or a proof has {_NONCE_BYTES}")
    return content


def _text(content: bytes) -> str:
    """What a stranger calls itself, or its reason, fit to be shown."""
    text = content.decode("utf-8", errors="replace")
    return text if text.isprintable() else shown(text)


def _hint(head: bytes) -> str:
    """What the first bytes of something else look like, for people; empty if they look like nothing."""
    if head.startswith(_TLS_HANDSHAKE):
        return " (this looks like TLS: one side has certificates and the other has none)"
    first = head.split(b"\r")[0]
    if first.isascii() and first.decode("ascii").isprintable():
        return f" (it begins with {first.decode('ascii')!r}: something else speaks there; is the port right?)"
    return ""
