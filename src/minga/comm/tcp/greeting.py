"""How two ranks make sure of each other before the first message: both prove that they know the generation's secret.

    caller: who I am, whom I want, a nonce          (HELLO)
    door:   a nonce                                 or why not
    caller: HMAC(secret, "caller", hello, nonce)
    door:   HMAC(secret, "door", hello, nonce)      or why not

The secret never travels, and both nonces are new each time, so nothing can be replayed, on this run or another. The
door proves itself last, so that who does not know the secret gets nothing to try guesses on.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from dataclasses import dataclass

from minga.comm.tcp.line import READ, WRITE, Line, Steps

__all__ = ["NO", "Dropped", "Hello", "Secret", "greet", "hear", "prove", "refuse"]

_MAGIC = b"minga/1\n"
_NONCE_BYTES = 32
_HELLO = struct.Struct(f"!8sQIII{_NONCE_BYTES}s")
_REPLY = struct.Struct(f"!B{_NONCE_BYTES}s")
_FINE, _STALE, _WRONG, _UNWANTED = range(4)
NO = {
    _STALE: "this generation is over there",
    _WRONG: "it knows another secret",
    _UNWANTED: "it expects no such connection",
}
"""What a door's no means, by its code."""

Secret = bytes


class Dropped(Exception):
    """This connection comes to nothing. `code` is what the other side is told; `final`: it is no use to call again."""

    def __init__(self, why: str, code: int | None = None, *, final: bool = False) -> None:
        super().__init__(why)
        self.code = code
        self.final = final

    @classmethod
    def stale(cls, why: str) -> Dropped:
        return cls(why, _STALE)

    @classmethod
    def unwanted(cls, why: str) -> Dropped:
        return cls(why, _UNWANTED)


@dataclass(frozen=True)
class Hello:
    """Who wants to talk to whom."""

    generation: int
    caller: int
    called: int
    channel: int
    nonce: bytes

    def pack(self) -> bytes:
        return _HELLO.pack(_MAGIC, self.generation, self.caller, self.called, self.channel, self.nonce)


def greet(line: Line, secret: Secret, *, generation: int, caller: int, called: int, channel: int) -> Steps[None]:
    """The caller's side."""
    hello = Hello(generation, caller, called, channel, secrets.token_bytes(_NONCE_BYTES))
    yield from _send(line, hello.pack())
    nonce = yield from _yes(line)
    yield from _send(line, _proof(secret, b"caller", hello, nonce))
    if not hmac.compare_digest((yield from _yes(line)), _proof(secret, b"door", hello, nonce)):
        raise Dropped("it could not prove that it knows the secret", final=True)


def hear(line: Line) -> Steps[Hello]:
    """The door's side, first part: who is it?"""
    magic, *fields = _HELLO.unpack((yield from _receive(line, _HELLO.size)))
    if magic != _MAGIC:
        raise Dropped("this is no greeting")
    return Hello(*fields)


def prove(line: Line, hello: Hello, secret: Secret) -> Steps[bytes]:
    """The door's side, second part; what remains to be sent to the caller, who is what it says it is."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    yield from _send(line, _REPLY.pack(_FINE, nonce))
    proof = yield from _receive(line, _NONCE_BYTES)
    if not hmac.compare_digest(bytes(proof), _proof(secret, b"caller", hello, nonce)):
        raise Dropped("it does not know the secret", _WRONG)
    return _REPLY.pack(_FINE, _proof(secret, b"door", hello, nonce))


def refuse(line: Line, code: int) -> None:
    """Say no, if that can be said at once."""
    line.send([memoryview(_REPLY.pack(code, bytes(_NONCE_BYTES)))])


def _proof(secret: Secret, side: bytes, hello: Hello, nonce: bytes) -> bytes:
    return hmac.new(secret, side + hello.pack() + nonce, hashlib.sha256).digest()


def _yes(line: Line) -> Steps[bytes]:
    code, content = _REPLY.unpack((yield from _receive(line, _REPLY.size)))
    if code != _FINE:
        raise Dropped(NO.get(code, "it says no"), final=True)
    return bytes(content)


def _send(line: Line, content: bytes) -> Steps[None]:
    rest = memoryview(content)
    while rest:
        rest = rest[line.send([rest]) :]
        if rest:
            yield WRITE


def _receive(line: Line, count: int) -> Steps[bytes]:
    content = bytearray(count)
    view = memoryview(content)
    while view:
        received = line.receive_into(view)
        if received is None:
            yield READ
        elif received == 0:
            raise Dropped("it hung up")
        else:
            view = view[received:]
    return bytes(content)
