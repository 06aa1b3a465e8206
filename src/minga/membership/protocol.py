"""Frames between members and the coordinator: 4 bytes of length (big-endian), then a JSON object in UTF-8.

    connection = Connection(reader, writer)
    connection.send({"kind": "leave", "finished": True})
    table = await connection.receive()

Nothing is believed: a frame that is too long is refused before it is read, and what is no JSON object is a
`ProtocolError`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from typing import Any, NoReturn

from minga.errors import ProtocolError
from minga.membership.strict import shown

__all__ = ["LONGEST_FRAME", "LONGEST_GREETING", "Connection", "decode", "encode"]

LONGEST_FRAME = 1 << 20
LONGEST_GREETING = 4096
"""Of a frame before the other side has shown that it knows the token."""
_LENGTH = struct.Struct(">I")
_MOST_UNSENT = 4 << 20
_TLS_HANDSHAKE = b"\x16\x03"


def encode(table: dict[str, Any]) -> bytes:
    """A frame."""
    body = json.dumps(table, separators=(",", ":"), allow_nan=False).encode()
    assert len(body) <= LONGEST_FRAME, f"a message of {len(body)} bytes is our own mistake"
    return _LENGTH.pack(len(body)) + body


def decode(body: bytes) -> dict[str, Any]:
    """What is in a frame; `ProtocolError` for anything but one JSON object without repeated keys."""
    try:
        table = json.loads(body.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_no_repeats)
    except (ValueError, RecursionError) as error:  # both UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise ProtocolError(f"a message that is no JSON: {shown(body)} ({shown(str(error))})") from None
    if type(table) is not dict:
        raise ProtocolError(f"a message should be a JSON object, not {shown(table)}")
    return table


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a key is there twice")
    return table


def _hint(head: bytes) -> str:
    """What the first bytes of a message that is too long look like, in words; empty if they look like nothing."""
    if head.startswith(_TLS_HANDSHAKE):
        return " (this looks like TLS: one side has certificates and the other has none)"
    if head.isascii() and head.decode("ascii").isprintable():
        return f" (it begins with {head.decode('ascii')!r}: something else than Minga speaks there; is the port right?)"
    return ""


class Connection:
    """Frames over a stream. All deadlines are the caller's (`asyncio.timeout`)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.longest = LONGEST_GREETING
        """Bytes of a frame that is accepted; more once the other side is known."""
        self.aborted = False

    @property
    def peer(self) -> str:
        """Address and port of the other side, for logs."""
        name = self._writer.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if name else "somebody who is gone"

    @property
    def peer_address(self) -> str:
        name = self._writer.get_extra_info("peername")
        return str(name[0]) if name else "unknown"

    async def receive(self) -> dict[str, Any]:
        """The next message; `ConnectionError` when the other side has ended the connection."""
        try:
            head = await self._reader.readexactly(_LENGTH.size)
            (length,) = _LENGTH.unpack(head)
            if length > self.longest:
                raise ProtocolError(
                    f"a message of {length} bytes, of which at most {self.longest} are accepted{_hint(head)}"
                )
            body = await self._reader.readexactly(length)
        except asyncio.IncompleteReadError as end:
            cut = "in the middle of a message" if end.partial else "between two messages"
            raise ConnectionResetError(f"the other side ended the connection {cut}") from None
        return decode(body)

    def send(self, table: dict[str, Any]) -> None:
        """Send without waiting; who does not read what it is sent is cut off before it costs memory."""
        transport = self._writer.transport
        if transport.is_closing():
            return
        if transport.get_write_buffer_size() > _MOST_UNSENT:
            self.abort()
            return
        self._writer.write(encode(table))

    async def close(self, patience_seconds: float = 1.0) -> None:
        """End the connection after what was sent has gone out, or after a while."""
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError, ValueError):  # ssl.SSLError is an OSError
            async with asyncio.timeout(patience_seconds):
                await self._writer.wait_closed()
                return
        self.abort()

    def abort(self) -> None:
        """End the connection now."""
        self.aborted = True
        self._writer.transport.abort()
