"""Keeps a connection to the coordinator: connects, greets, listens, sends heartbeats, and begins again.

    contact = Contact(where, hello=..., hear=..., beat=...)
    contact.start(); contact.send(Formed(generation=1)); contact.stop()

It has a thread with an event loop of its own, which sleeps between heartbeats: training next to it loses nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import threading
from collections.abc import Callable

from minga.errors import PeerTimeout, ProtocolError, Refused
from minga.membership.messages import Ended, FromCoordinator, FromMember, Heartbeat, Hello, Refusal, Welcome
from minga.membership.protocol import ControlConnection, CoordinatorAddress
from minga.net.interfaces import explain
from minga.net.tls import why_not

__all__ = ["Contact"]

_WELCOME_SECONDS = 10.0  # the coordinator connects back before it answers
_FIRST_DELAY_SECONDS = 0.05
_LONGEST_DELAY_SECONDS = 1.0
_LAST_MESSAGE_SECONDS = 2.0
_log = logging.getLogger("minga.membership.contact")


class _RefusedByCoordinator(Refused):
    """A refusal that came after the greeting, so from somebody who knows the token."""


class _RunOver(Exception):
    """There is nobody to talk to any more."""


class Contact:
    """The way to the coordinator. `hello`, `hear` and `beat` are called in its thread."""

    def __init__(
        self,
        where: CoordinatorAddress,
        *,
        hello: Callable[[], Hello],
        hear: Callable[[FromCoordinator], None],
        beat: Callable[[], Heartbeat | None],
    ) -> None:
        self._where = where
        self._hello, self._hear, self._beat = hello, hear, beat
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._stopped = False
        self._connection: ControlConnection | None = None
        self._known = False
        self._delay = _FIRST_DELAY_SECONDS
        self._last_message: FromMember | None = None
        self._sent_last_message = False
        self._heartbeat_seconds = 1.0
        self.welcomed = False
        """Whether the coordinator has said welcome on a connection that still stands."""
        self.trouble = ""
        """Why there is no connection, in words; empty if there is one."""

    def start(self) -> None:
        """Once; a contact that was stopped stays so."""
        with self._lock:
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=lambda: asyncio.run(self._stay()), name="member", daemon=True)
                self._thread.start()

    def send(self, message: FromMember) -> None:
        """Send if there is a connection, from any thread; what matters later is sent again after the next welcome."""
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._send, message)

    def stop(self, last_message: FromMember | None = None) -> None:
        """End thread and connection; `last_message`: the coordinator gets a moment to receive it, or to come back."""
        with self._lock:
            self._stopped = True
            thread = self._thread
            if self._loop is not None and self._stopping is not None:
                self._loop.call_soon_threadsafe(self._end, last_message)
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    # In the thread

    def _send(self, message: FromMember) -> None:
        if self._connection is not None and self.welcomed:
            self._connection.send(message)
            self._sent_last_message = message is self._last_message

    def _end(self, last_message: FromMember | None) -> None:
        assert self._stopping is not None
        if last_message is not None and self._known:  # the coordinator ends the connection of who leaves
            self._last_message = last_message
            self._send(last_message)
            asyncio.get_running_loop().call_later(_LAST_MESSAGE_SECONDS, self._stopping.set)
        else:
            self._stopping.set()

    async def _stay(self) -> None:
        with self._lock:
            self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
            if self._stopped:
                self._stopping.set()
        try:
            staying = asyncio.create_task(self._connect_again_and_again())
            stopping = asyncio.create_task(self._stopping.wait())
            await asyncio.wait([staying, stopping], return_when=asyncio.FIRST_COMPLETED)
            for task in (staying, stopping):
                task.cancel()
            await asyncio.gather(staying, stopping, return_exceptions=True)
        finally:
            with self._lock:
                self._loop = None

    async def _connect_again_and_again(self) -> None:
        self._delay = _FIRST_DELAY_SECONDS
        where = f"{self._where.address}:{self._where.port}"
        while True:
            try:
                await self._talk()
            except _RunOver:
                return
            except Refused as refusal:
                # A member does not believe a stranger at the coordinator's address, but a newcomer should hear at once.
                if not self._known or isinstance(refusal, _RefusedByCoordinator):
                    self._hear(Refusal(reason=str(refusal)))
                    return
                self._set_trouble(str(refusal))
            except ssl.SSLError as error:
                self._set_trouble(f"no TLS connection to {where}: {why_not(error)}")
            except (ProtocolError, PeerTimeout, ConnectionResetError) as error:
                self._set_trouble(f"{where}: {error}")
            except (OSError, TimeoutError) as error:
                self._set_trouble(explain(self._where.address, self._where.port, error, self._where.source_address))
            if self._sent_last_message:
                return
            # Not all at the same moment when the coordinator comes back.
            await asyncio.sleep(self._delay * random.uniform(0.5, 1))
            self._delay = min(2 * self._delay, _LONGEST_DELAY_SECONDS)

    def _set_trouble(self, trouble: str) -> None:
        if trouble != self.trouble and not self._sent_last_message:
            _log.warning("%s; trying again", trouble)
        self.trouble = trouble

    async def _talk(self) -> None:
        """One connection, from beginning to end; it always ends with an error."""
        async with self._where.connected() as connection:
            beating: asyncio.Task[None] | None = None
            self._connection = connection
            try:
                async with asyncio.timeout(_WELCOME_SECONDS):
                    connection.send(self._hello())
                    self._receive(await connection.receive())
                beating = asyncio.create_task(self._send_heartbeats(connection))
                while True:
                    self._receive(await connection.receive())
            finally:
                self.welcomed, self._connection = False, None
                if beating is not None:
                    beating.cancel()
                    # Not `await beating`: its cancellation would look like that of this task.
                    await asyncio.gather(beating, return_exceptions=True)

    def _receive(self, message: FromMember | FromCoordinator) -> None:
        if isinstance(message, Refusal):
            raise _RefusedByCoordinator(message.reason)
        if isinstance(message, FromMember):
            raise ProtocolError(f"a coordinator does not send {type(message).__name__.lower()!r}")
        if isinstance(message, Welcome):
            self._heartbeat_seconds = max(message.heartbeat_seconds, 0.01)
            self.welcomed = self._known = True
            self.trouble = ""
            self._delay = _FIRST_DELAY_SECONDS
        elif not self.welcomed:
            raise ProtocolError("a coordinator sends welcome first")
        self._hear(message)
        if isinstance(message, Ended):
            raise _RunOver
        if isinstance(message, Welcome) and self._last_message is not None:
            self._send(self._last_message)

    async def _send_heartbeats(self, connection: ControlConnection) -> None:
        while True:
            heartbeat = self._beat()
            if heartbeat is None:
                connection.abort()  # the other side does not answer: perhaps a new connection finds a way
                return
            connection.send(heartbeat)
            await asyncio.sleep(self._heartbeat_seconds)
