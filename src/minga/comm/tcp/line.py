"""One connection that never blocks, plain or with TLS.

    line = Line(connection); line.receive_into(view)   # bytes, 0 at the end, None: nothing now

The kernel wakes nobody before a good part of a message has arrived (SO_RCVLOWAT): on a link of 100 Mbit/s packets come
8,000 times a second, and each would take the core from training.
"""

from __future__ import annotations

import contextlib
import fcntl
import select
import socket
import ssl
import struct
import termios
import time
from collections.abc import Generator, Sequence
from typing import NamedTuple, TypeVar

__all__ = ["READ", "WRITE", "Line", "Steps", "Tls"]

Result = TypeVar("Result")

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
# Something done in steps: it yields READ or WRITE where it can't go on before the connection is ready for that.
Steps = Generator[int, None, Result]

# Bytes that have to be there before anybody is woken up; also the end of a message, if that is less.
_ENOUGH = 1 << 18
# What TLS may already have taken from the kernel of a message whose end is still to come: part of a record.
_TLS_RECORD = 1 << 15
# TLS sends a record for each call, so short parts go together.
_TLS_JOINED = 1 << 14


class Tls(NamedTuple):
    """What a process shows to those who connect to it, and to those it connects to. Both should verify."""

    server: ssl.SSLContext
    client: ssl.SSLContext


class Line:
    """A connected (or connecting) socket. Who uses it sees to it that only one thread does at a time."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        with contextlib.suppress(OSError):  # not TCP, in tests
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._tls: ssl.SSLSocket | None = None
        self._patience = 1
        self.descriptor = connection.fileno()

    @property
    def encrypted(self) -> bool:
        """Whether bytes may be waiting here that the kernel knows nothing of: read on until nothing comes."""
        return self._tls is not None

    def encrypt(self, tls: Tls, *, server_name: str | None) -> Steps[None]:
        """The handshake of TLS; `server_name` is given by the side that called."""
        context = tls.client if server_name is not None else tls.server
        self._tls = context.wrap_socket(
            self._socket,
            server_side=server_name is None,
            server_hostname=server_name,
            do_handshake_on_connect=False,
            suppress_ragged_eofs=True,
        )
        self._socket = self._tls
        while True:
            try:
                return self._tls.do_handshake()
            except ssl.SSLWantReadError:
                yield READ
            except ssl.SSLWantWriteError:
                yield WRITE

    def receive_into(self, view: memoryview) -> int | None:
        """How many bytes came; 0 when the other side has ended, None when there is nothing now."""
        try:
            return self._socket.recv_into(view)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def send(self, parts: Sequence[memoryview]) -> int:
        """How many bytes of these the kernel took."""
        try:
            if self._tls is None:
                return self._socket.sendmsg(parts)
            if len(parts) > 1 and sum(map(len, parts)) <= _TLS_JOINED:
                return self._tls.send(b"".join(parts))
            return self._tls.send(next(part for part in parts if len(part)))
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0

    def be_patient(self, left: int) -> None:
        """Wake nobody before a good part of the `left` bytes is there."""
        if self._tls is not None:
            left -= _TLS_RECORD
        patience = max(1, min(_ENOUGH, left))
        if patience != self._patience:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, patience)
            self._patience = patience

    def finish(self, deadline: float) -> None:
        """Close, once what was sent has arrived: closing with something unread would make the kernel drop it."""
        with contextlib.suppress(OSError, ValueError):
            self._socket.shutdown(socket.SHUT_WR)
            while self._unacknowledged() and time.monotonic() < deadline:
                time.sleep(0.001)
        self.close()

    def _unacknowledged(self) -> int:
        answer = fcntl.ioctl(self.descriptor, termios.TIOCOUTQ, b"\0" * 4)
        return int(struct.unpack("i", answer)[0])

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()
