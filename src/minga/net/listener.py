"""Lets in who knows the secret, and is not held up by anybody else.

    listener = Listener(listen("127.0.0.1", 0), context=None, seconds=5, look_up=key_of, welcome=take_over)
    await listener.serve()

TLS and the greeting have one deadline. There are never more than 64 unfinished greetings: with one more, the oldest is
dropped, since an honest one takes milliseconds; so a crowd can't keep anybody out. Who was dropped calls again.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from minga.base.rate_limit import RateLimit
from minga.errors import ProtocolError, Refused
from minga.net.greeting import Opening, check, hear, refusal
from minga.net.sockets import READ, Socket
from minga.net.tls import why_not

__all__ = ["Key", "Listener"]

_MOST_UNFINISHED = 64
# Who wants what is not there yet may wait so long, and so many of them.
_EARLY_SECONDS = 30.0
_MOST_EARLY = 256
# Who connects without end is not to fill the log.
_MOST_LINES_A_SECOND = 20
_log = logging.getLogger("minga.net")


class Key(NamedTuple):
    """What a caller must know for what it claims."""

    secret: bytes
    name: str = ""
    """What is here, for the caller to know."""
    wrong: str = "it knows another secret"
    """The refusal if it does not know the secret."""


@dataclass(eq=False)
class _Visitor:
    connection: Socket
    peer: str
    deadline: asyncio.Timeout
    task: asyncio.Task[None] | None = None


class Listener:
    """Accepts connections, greets, and hands those who know the secret to `welcome`."""

    def __init__(
        self,
        listening: socket.socket,
        *,
        context: ssl.SSLContext | None,
        seconds: float,
        look_up: Callable[[Opening], Key | None],
        welcome: Callable[[Socket, Opening, bytes], Awaitable[None]],
    ) -> None:
        """`look_up`: the key for a claim, None if it is to wait for `reconsider`, or `Refused` with the reason.

        `welcome` owns the connection, whose first message must be the bytes that it gets; or raises `Refused`.
        """
        self._listening = listening
        self._context = context
        self._seconds = seconds
        self._look_up = look_up
        self._welcome = welcome
        self._tasks: set[asyncio.Task[None]] = set()
        self.unfinished: dict[_Visitor, None] = {}
        """Those who are being greeted, the oldest first."""
        self.early: dict[_Visitor, asyncio.Event] = {}
        """Those who wait for what they claim, the oldest first."""
        self._lines = RateLimit(_MOST_LINES_A_SECOND, seconds=1.0)

    async def serve(self) -> None:
        """Until cancelled; then everybody who came in is cut off."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    accepted, _ = await loop.sock_accept(self._listening)
                except OSError as error:  # somebody who was gone at once, or out of file descriptors
                    self.refuse("somebody", f"can't accept a connection: {error}")
                    if error.errno in (errno.EMFILE, errno.ENFILE):
                        self._make_room(self.unfinished, 0)
                        self._make_room(self.early, 0)
                    await asyncio.sleep(0.05)
                    continue
                connection = Socket(accepted)
                visitor = _Visitor(connection, "{}:{}".format(*connection.peer), asyncio.timeout(self._seconds))
                self._make_room(self.unfinished, _MOST_UNFINISHED - 1)
                self.unfinished[visitor] = None
                visitor.task = loop.create_task(self._admit(visitor))
                self._tasks.add(visitor.task)
                visitor.task.add_done_callback(self._tasks.discard)
                await asyncio.sleep(0)  # a task that is cancelled before it has begun would leave its socket open
        finally:
            self._listening.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def reconsider(self) -> None:
        """Something that early ones wait for may be there now."""
        for changed in self.early.values():
            changed.set()

    def refuse(self, peer: str, reason: str) -> None:
        """One line in the log for each, but not a log full of them."""
        if self._lines.take():
            more = f" (and {self._lines.refused} others meanwhile)" if self._lines.refused else ""
            _log.warning("refused %s: %s%s", peer, reason, more)

    def _make_room(self, among: dict[_Visitor, None] | dict[_Visitor, asyncio.Event], most: int) -> None:
        for visitor in list(among)[: max(0, len(among) - most)]:
            del among[visitor]
            kind = "unfinished greetings" if among is self.unfinished else "connections that came early"
            self.refuse(visitor.peer, f"more than {most + 1} {kind}")
            assert visitor.task is not None
            visitor.task.cancel()

    async def _admit(self, visitor: _Visitor) -> None:
        connection, handed_over = visitor.connection, False
        try:
            async with visitor.deadline:
                if self._context is not None:
                    await connection.encrypt(self._context)
                opening = await hear(connection)
                key = await self._key_for(visitor, opening)
                accept = await check(connection, opening, key.secret, name=key.name, wrong=key.wrong)
            self.unfinished.pop(visitor, None)
            await self._welcome(connection, opening, accept)
            handed_over = True
        except TimeoutError:
            seconds = _EARLY_SECONDS if visitor in self.early else self._seconds
            self.refuse(visitor.peer, f"no greeting within {seconds:g} s")
        except ssl.SSLError as error:
            self.refuse(visitor.peer, f"no TLS connection: {why_not(error)}")
        except Refused as error:
            self.refuse(visitor.peer, str(error))
            await self._send_refusal(connection, f"refused: {error}")
        except (ProtocolError, OSError) as error:
            self.refuse(visitor.peer, str(error))
        except Exception:  # whatever one visitor does, others must be let in
            _log.exception("could not let %s in", visitor.peer)
        finally:
            self.unfinished.pop(visitor, None)
            self.early.pop(visitor, None)
            if not handed_over:
                connection.close()

    async def _key_for(self, visitor: _Visitor, opening: Opening) -> Key:
        loop = asyncio.get_running_loop()
        while (key := self._look_up(opening)) is None:
            self.unfinished.pop(visitor, None)
            self._make_room(self.early, _MOST_EARLY - 1)
            changed = self.early[visitor] = asyncio.Event()
            visitor.deadline.reschedule(loop.time() + _EARLY_SECONDS)
            gone = asyncio.ensure_future(visitor.connection.ready(READ))  # it has nothing to say before it is answered
            there = asyncio.ensure_future(changed.wait())
            try:
                await asyncio.wait([gone, there], return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    raise ProtocolError("it came early and did not wait")
            finally:
                for waiting in (gone, there):
                    waiting.cancel()
                await asyncio.gather(gone, there, return_exceptions=True)
            del self.early[visitor]
            self._make_room(self.unfinished, _MOST_UNFINISHED - 1)
            self.unfinished[visitor] = None
            visitor.deadline.reschedule(loop.time() + self._seconds)
        return key

    async def _send_refusal(self, connection: Socket, reason: str) -> None:
        """If it can be sent at once; and a moment for the other side to read it and to hang up."""
        try:
            connection.send([memoryview(refusal(reason))])
            async with asyncio.timeout(0.2):
                await connection.ready(READ)
        except (OSError, TimeoutError):
            pass
