"""Messages between members and the coordinator: 4 bytes of length (big-endian), then a JSON object in UTF-8.

    where = CoordinatorAddress(address="10.0.0.1", port=4000, token=token)
    async with where.connected() as connection:
        description = await connection.ask(Inquiry(), Description)

Nothing is believed: a frame that is too long is refused before it is read, and what is no message is a `ProtocolError`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TypeVar

from minga.errors import PeerTimeout, ProtocolError, Refused
from minga.membership.messages import FromCoordinator, FromMember, Refusal, from_dict, to_dict
from minga.net.greeting import introduce
from minga.net.interfaces import explain
from minga.net.sockets import WRITE, Socket, connect
from minga.net.strict import decode
from minga.net.tls import Tls, why_not

__all__ = ["CLAIM", "LONGEST_FRAME", "ControlConnection", "CoordinatorAddress", "encode"]

CLAIM = b"membership"
"""What is claimed in the greeting of who connects to a coordinator."""
LONGEST_FRAME = 1 << 20
_LENGTH = struct.Struct(">I")
_MOST_UNSENT = 4 << 20
_CONNECT_SECONDS = 2.0
_GREETING_SECONDS = 5.0
_ANSWER_SECONDS = 5.0

Answer = TypeVar("Answer")


def encode(message: FromMember | FromCoordinator) -> bytes:
    """A frame."""
    body = json.dumps(to_dict(message), separators=(",", ":"), allow_nan=False).encode()
    assert len(body) <= LONGEST_FRAME, f"a message of {len(body)} bytes is our own mistake"
    return _LENGTH.pack(len(body)) + body


@dataclass(frozen=True, kw_only=True)
class CoordinatorAddress:
    """How to come to a coordinator, and what both sides must know."""

    address: str
    port: int
    token: str = field(repr=False)
    run: str | None = None
    """Its name, if known, so that another one's coordinator is noticed."""
    tls: Tls | None = None
    source_address: str | None = None
    """That of the interface to go by."""

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[ControlConnection]:
        """A connection on which both sides have shown that they know the token; it ends with the block."""
        async with asyncio.timeout(_CONNECT_SECONDS):
            context = self.tls.client if self.tls is not None else None
            socket = await connect(self.address, self.port, context, source_address=self.source_address)
        connection = ControlConnection(socket)
        try:
            try:
                async with asyncio.timeout(_GREETING_SECONDS):
                    await introduce(socket, self.token.encode(), claim=CLAIM, name=self.run)
            except TimeoutError:
                raise PeerTimeout(
                    f"{self.address}:{self.port} takes connections, but says nothing for {_GREETING_SECONDS:g} s: is "
                    "this the port that 'minga train --listen' has printed? (Or that machine stands still.)"
                ) from None
            yield connection
        finally:
            try:
                await connection.close(0.2)
            finally:
                connection.abort()

    def explain(self, error: Exception) -> str:
        """Why there is no connection, in words."""
        if isinstance(error, PeerTimeout):
            return str(error)
        if isinstance(error, ssl.SSLError):
            return f"no TLS connection to {self.address}:{self.port}: {why_not(error)}"
        if isinstance(error, ConnectionResetError):  # by the kernel, or noticed between two messages
            ended = "the other side ended the connection" if error.errno else error
            return f"{self.address}:{self.port}: {ended}; perhaps only one of the two uses TLS (--tls)"
        if isinstance(error, ProtocolError):
            return f"{self.address}:{self.port}: {error}"
        return explain(self.address, self.port, error, self.source_address)


class ControlConnection:
    """Frames over a socket, in an event loop. All deadlines are the caller's (`asyncio.timeout`)."""

    def __init__(self, socket: Socket, first: bytes = b"") -> None:
        """`first` goes out before all messages."""
        self._socket = socket
        self.peer_address, port = socket.peer
        self.peer = f"{self.peer_address}:{port}"
        """Address and port of the other side, for logs."""
        self._unsent = bytearray(first)
        self._sending: asyncio.Task[None] | None = None
        self._receiving = False
        self._ending = False
        self.aborted = False
        self._flush()

    async def receive(self) -> FromMember | FromCoordinator:
        """The next message; `ConnectionError` when the other side has ended the connection."""
        (length,) = _LENGTH.unpack(await self._receive(_LENGTH.size))
        if length > LONGEST_FRAME:
            raise ProtocolError(f"a message of {length} bytes, of which at most {LONGEST_FRAME} are accepted")
        return from_dict(decode(await self._receive(length)))

    async def ask(self, question: FromMember, *answers: type[Answer]) -> Answer:
        """Send, and receive what is one of `answers`; `Refused` if the other side says no."""
        self.send(question)
        async with asyncio.timeout(_ANSWER_SECONDS):
            answer = await self.receive()
        if isinstance(answer, Refusal):
            raise Refused(answer.reason)
        if isinstance(answer, answers):
            return answer
        kinds = [type(message).__name__.lower() for message in (question, answer)]
        raise ProtocolError(f"the answer to {kinds[0]!r} can't be {kinds[1]!r}")

    async def _receive(self, count: int) -> bytes:
        if self.aborted:
            raise ConnectionAbortedError("the connection was ended here")
        self._receiving = True
        try:
            return await self._socket.receive(count)
        finally:
            self._receiving = False
            self._close_if_aborted()

    def _close_if_aborted(self) -> None:
        if self.aborted and not self._receiving:
            self._socket.close()

    def send(self, message: FromMember | FromCoordinator) -> None:
        """Send without waiting; who does not read what it is sent is cut off before it costs memory."""
        if self._ending or self.aborted:
            return
        if len(self._unsent) > _MOST_UNSENT:
            self.abort()
            return
        self._unsent += encode(message)
        self._flush()

    def _flush(self) -> None:
        if self._unsent and self._sending is None:
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._unsent:
                count = self._socket.send([memoryview(bytes(self._unsent[:_MOST_UNSENT]))])
                del self._unsent[:count]
                if self._unsent:
                    await self._socket.ready(WRITE)
        except OSError:  # whoever receives finds out why
            self._unsent.clear()
        finally:
            self._sending = None

    async def close(self, patience_seconds: float = 1.0) -> None:
        """End the connection after what was sent has gone out, or after a while."""
        self._ending = True
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=patience_seconds)
        self.abort()

    def abort(self) -> None:
        """End the connection now; whoever receives gets a `ConnectionError`."""
        if self.aborted:
            return
        self.aborted = True
        if self._sending is not None:
            self._sending.cancel()
        self._socket.shutdown()
        # Not before those who were cancelled have stopped watching the descriptor, which may be another's then.
        asyncio.get_running_loop().call_soon(self._close_if_aborted)
