"""The coordinator's listener: lets in who knows the token, and is not held up by anybody else.

    entrance = Entrance(listen("127.0.0.1", 0), token=token, run="r", tls=None, welcome=handle,
                        greeting_seconds=5)
    await entrance.serve()

Everything up to the end of the greeting has one deadline. There are never more than 64 unfinished greetings: with one
more, the oldest is dropped, so that a crowd at the door can't keep a member out whose greeting takes a millisecond.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable

from minga.base.rate_limit import RateLimit
from minga.errors import PortBusy, ProtocolError, Refused
from minga.membership.greeting import greet_member
from minga.membership.protocol import Connection
from minga.membership.tls import Tls, why_not

__all__ = ["GREETING_SECONDS", "Entrance", "listen"]

GREETING_SECONDS = 5.0
_MOST_UNFINISHED = 64
_MOST_LINES_A_SECOND = 20
_log = logging.getLogger("minga.membership.entrance")


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
                f"can't listen on {address}, port {port}: {error.strerror}. Give an address of this machine; "
                "port 0 takes a free one"
            ) from None
        listener.setblocking(False)
        return listener


class Entrance:
    """Accepts connections, greets, and hands those who know the token to `welcome`."""

    def __init__(
        self,
        listener: socket.socket,
        *,
        token: str,
        run: str,
        tls: Tls | None,
        welcome: Callable[[Connection], Awaitable[None]],
        greeting_seconds: float,
    ) -> None:
        self._listener = listener
        self._token, self._run, self._tls = token, run, tls
        self._welcome = welcome
        self._greeting_seconds = greeting_seconds
        self._unfinished: dict[asyncio.Task[None], str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._lines = RateLimit(_MOST_LINES_A_SECOND, seconds=1.0)

    async def serve(self) -> None:
        """Until cancelled; then everybody who came in is cut off."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    accepted, peer = await loop.sock_accept(self._listener)
                except OSError as error:  # out of file descriptors, or somebody who was gone at once
                    self.refuse("somebody", f"can't accept a connection: {error}")
                    await asyncio.sleep(0.1)
                    continue
                task = loop.create_task(self._admit(accepted, f"{peer[0]}:{peer[1]}"))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                self._unfinished[task] = f"{peer[0]}:{peer[1]}"
                task.add_done_callback(lambda done: self._unfinished.pop(done, None) and None)
                if len(self._unfinished) > _MOST_UNFINISHED:
                    oldest = next(iter(self._unfinished))
                    self.refuse(self._unfinished.pop(oldest), f"more than {_MOST_UNFINISHED} unfinished greetings")
                    oldest.cancel()
                await asyncio.sleep(0)  # a task that is cancelled before it has begun would leave its socket open
        finally:
            self._listener.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def refuse(self, peer: str, reason: str) -> None:
        """One line in the log for each, but not a log full of them."""
        if self._lines.take():
            more = f" (and {self._lines.refused} others that were refused meanwhile)" if self._lines.refused else ""
            _log.warning("refused %s: %s%s", peer, reason, more)

    async def _admit(self, accepted: socket.socket, peer: str) -> None:
        connection: Connection | None = None
        reason = ""
        try:
            async with asyncio.timeout(self._greeting_seconds):
                connection = await self._open(accepted)
                await greet_member(connection, self._token, self._run)
        except TimeoutError:
            reason = f"no greeting within {self._greeting_seconds:g} s"
        except ssl.SSLError as error:
            reason = f"no TLS connection: {why_not(error)}"
        except (ProtocolError, Refused, OSError) as error:
            reason = str(error)
        except asyncio.CancelledError:
            _abort(connection, accepted)
            raise
        self._unfinished.pop(asyncio.current_task(), None)  # type: ignore[arg-type]
        if reason or connection is None:
            self.refuse(peer, reason)
            if connection is not None:
                await connection.close(0.2)  # the reason, if one was sent, should arrive
            _abort(connection, accepted)
            return
        try:
            await self._welcome(connection)
        finally:
            connection.abort()

    async def _open(self, accepted: socket.socket) -> Connection:
        """A stream over an accepted socket. TLS begins here, so that its handshake has the greeting's deadline too."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        context = self._tls.server if self._tls is not None else None
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=context)
        return Connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


def _abort(connection: Connection | None, accepted: socket.socket) -> None:
    if connection is not None:
        connection.abort()
    else:
        with contextlib.suppress(OSError):
            accepted.close()
