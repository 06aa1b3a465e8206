"""Connections that never block, plain or with TLS, and the one place where ports are listened on.

    socket = await connect("10.0.0.1", 4000, tls.client)       # in an event loop
    socket.receive_into(view)                                  # anywhere: bytes, 0 at the end, None: nothing now

Who makes a connection waits for it in an event loop; what comes after the greeting may be moved by any poller.

The kernel wakes nobody before a good part of a message has arrived (SO_RCVLOWAT): on a link of 100 Mbit/s packets come
8,000 times a second, and each would take the core from training.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import select
import socket
import ssl
import struct
import termios
import time
from collections.abc import Sequence

from minga.errors import PortBusy

__all__ = ["READ", "WRITE", "Socket", "Waker", "connect", "listen"]

READ, WRITE = select.EPOLLIN, select.EPOLLOUT

# Bytes that have to be there before anybody is woken up; also the end of a message, if that is less.
_ENOUGH = 1 << 18
# What TLS may already have taken from the kernel of a message whose end is still to come: part of a record.
_TLS_RECORD = 1 << 15
# TLS sends a record for each call, so short parts go together.
_TLS_JOINED = 1 << 14


class Socket:
    """A connected (or connecting) socket. Who uses it sees to it that only one thread does at a time."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        with contextlib.suppress(OSError):  # not TCP, in tests
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._tls: ssl.SSLSocket | None = None
        self._low_water = 1
        self.descriptor = connection.fileno()

    @property
    def encrypted(self) -> bool:
        """Whether bytes may be waiting here that the kernel knows nothing of: read on until nothing comes."""
        return self._tls is not None

    @property
    def peer(self) -> tuple[str, int]:
        """Address and port of the other side, as long as there is one."""
        try:
            name = self._socket.getpeername()
        except OSError:
            return "unknown", 0
        return str(name[0]), int(name[1])

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

    def wake_late(self, left: int) -> None:
        """Wake nobody before a good part of the `left` bytes is there."""
        if self._tls is not None:
            left -= _TLS_RECORD
        low_water = max(1, min(_ENOUGH, left))
        if low_water != self._low_water:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low_water)
            self._low_water = low_water

    # In an event loop

    async def ready(self, wanted: int) -> None:
        """Wait until something can be read or written; for one waiter of each kind at a time."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        reads = wanted == READ
        add, remove = (loop.add_reader, loop.remove_reader) if reads else (loop.add_writer, loop.remove_writer)
        add(self.descriptor, lambda: None if waiter.done() else waiter.set_result(None))
        try:
            await waiter
        finally:
            remove(self.descriptor)

    async def connect(self, address: tuple[object, ...]) -> None:
        try:
            self._socket.connect(address)
        except BlockingIOError:
            await self.ready(WRITE)
        failure = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failure:
            raise OSError(failure, os.strerror(failure))

    async def encrypt(self, context: ssl.SSLContext, server_name: str | None = None) -> None:
        """The handshake of TLS; `server_name` is given by the side that connects."""
        self._socket = self._tls = context.wrap_socket(
            self._socket,
            server_side=server_name is None,
            server_hostname=server_name,
            do_handshake_on_connect=False,
            suppress_ragged_eofs=True,
        )
        while True:
            try:
                return self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.ready(READ)
            except ssl.SSLWantWriteError:
                await self.ready(WRITE)

    async def send_all(self, content: bytes) -> None:
        rest = memoryview(content)
        while rest := rest[self.send([rest]) :]:
            await self.ready(WRITE)

    async def receive(self, count: int) -> bytes:
        """Exactly so many bytes; `ConnectionResetError` when the other side ends before that."""
        content = bytearray(count)
        view = memoryview(content)
        while view:
            received = self.receive_into(view)
            if received is None:
                await self.ready(READ)
            elif received == 0:
                cut = "in the middle of a message" if len(view) < count else "between two messages"
                raise ConnectionResetError(f"the other side ended the connection {cut}")
            else:
                view = view[received:]
        return bytes(content)

    # The end

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

    def shutdown(self) -> None:
        """End it in both directions; whoever waits for it is woken up."""
        with contextlib.suppress(OSError, ValueError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()


async def connect(
    address: str, port: int, context: ssl.SSLContext | None = None, *, source_address: str | None = None
) -> Socket:
    """A connection, in an event loop; `source_address`: that of the interface to go by."""
    failure: OSError | None = None
    for family, kind, _, _, target in socket.getaddrinfo(address, port, type=socket.SOCK_STREAM):
        plain = socket.socket(family, kind)
        connection = Socket(plain)
        try:
            if source_address is not None:
                plain.bind((source_address, 0))
            await connection.connect(target)
            if context is not None:
                await connection.encrypt(context, server_name=address)
            return connection
        except BaseException as error:
            connection.close()
            if not isinstance(error, OSError) or isinstance(error, ssl.SSLError):
                raise
            failure = error
    assert failure is not None
    raise failure


def listen(address: str, port: int, patience_seconds: float = 0.0) -> socket.socket:
    """A listening socket at one address; `patience_seconds`: how long to wait for a port that is not yet free."""
    deadline = time.monotonic() + patience_seconds
    while True:
        listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, port))
            listener.listen(256)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            raise PortBusy(
                f"can't listen on {address}, port {port}: {error.strerror}. Give an address of this machine; leave the "
                "port out (0 takes a free one), or choose another"
            ) from None
        listener.setblocking(False)
        return listener


class Waker:
    """Wakes a thread that waits in a poller, from anywhere.

    Waking takes no lock, so that also the handler of a signal may do it in the middle of anything.
    For the same reason nobody closes it: somebody may be about to wake, and the number could be another file's by then.
    The descriptor is given back when nobody can wake any more.
    """

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def wake(self) -> None:
        os.eventfd_write(self.descriptor, 1)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)

    def __del__(self) -> None:
        os.close(self.descriptor)
