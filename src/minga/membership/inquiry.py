"""Asking a coordinator what its run is about, before joining.

    description = ask(Visit(address="10.0.0.1", port=4000, token=token), timeout_seconds=30)
    experiment = parse("\\n".join(description.lines))

A run has a description when the first of its own members is there, so that what others must have in common with it is
known by then.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import ssl
import time
from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass, field

from minga.errors import PeerTimeout, ProtocolError, Refused
from minga.membership.greeting import check_token, greet_coordinator
from minga.membership.interfaces import explain
from minga.membership.messages import Description, Inquiry, Refusal, Waiting, from_dict, to_dict
from minga.membership.protocol import LONGEST_FRAME, Connection
from minga.membership.tls import Tls, why_not

__all__ = ["Numbers", "Visit", "ask"]

_CONNECT_SECONDS = 2.0
_GREETING_SECONDS = 5.0
_PAUSE_SECONDS = 0.3
# The interface that was asked for does not lead there, and won't in a second.
_HOPELESS = (errno.EINVAL, errno.EADDRNOTAVAIL)
_NUMBERED = re.compile(r"node-(\d{1,9})")
# Who has asked for a number says hello when its data is loaded. Later than that it may find the number taken.
_RESERVED_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Visit:
    """How to come to a coordinator without being a member."""

    address: str
    port: int
    token: str = field(repr=False)
    tls: Tls | None = None
    source_address: str | None = None
    """By which interface to go."""

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[Connection]:
        """A connection on which both sides have shown that they know the token."""
        async with asyncio.timeout(_CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                self.address,
                self.port,
                ssl=self.tls.client if self.tls is not None else None,
                server_hostname=self.address if self.tls is not None else None,
                local_addr=(self.source_address, 0) if self.source_address is not None else None,
            )
        connection = Connection(reader, writer)
        try:
            try:
                async with asyncio.timeout(_GREETING_SECONDS):
                    await greet_coordinator(connection, self.token, None)
            except TimeoutError:
                raise PeerTimeout(
                    f"{self.address}:{self.port} takes connections, but says nothing for {_GREETING_SECONDS:g} s: is "
                    "this the port that 'minga train --listen' has printed? (Or that machine stands still.)"
                ) from None
            connection.longest = LONGEST_FRAME
            yield connection
        finally:
            await connection.close(0.2)


def ask(visit: Visit, *, timeout_seconds: float = 30.0) -> Description:
    """The run's description, as soon as there is one; `Refused` or `PeerTimeout` with what is in the way."""
    check_token(visit.token)
    address, port = visit.address, visit.port
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            return asyncio.run(_ask(visit))
        except (_NotYet, PeerTimeout) as not_yet:
            trouble = str(not_yet)
        except ssl.SSLError as error:
            trouble = f"no TLS connection to {address}:{port}: {why_not(error)}"
        except ProtocolError as error:
            raise Refused(f"{address}:{port}: {error}") from None
        except (OSError, TimeoutError) as error:
            trouble = explain(address, port, error, visit.source_address)
            if isinstance(error, OSError) and error.errno in _HOPELESS:
                raise PeerTimeout(trouble) from None
        if time.monotonic() > deadline:
            raise PeerTimeout(f"{trouble} (tried for {timeout_seconds:g} s)")
        time.sleep(_PAUSE_SECONDS)


class _NotYet(Exception):
    """The coordinator answers, but has nothing to describe yet."""


async def _ask(visit: Visit) -> Description:
    async with visit.connected() as connection, asyncio.timeout(_GREETING_SECONDS):
        connection.send(to_dict(Inquiry()))
        answer = from_dict(await connection.receive())
    match answer:
        case Description():
            return answer
        case Waiting():
            raise _NotYet(answer.message)
        case Refusal():
            raise Refused(answer.reason)
    raise ProtocolError(f"the answer to an inquiry can't be {type(answer).__name__.lower()!r}")


class Numbers:
    """Numbers for nodes that have none: the lowest that nobody has, or has been given lately."""

    def __init__(self) -> None:
        self._given: dict[int, float] = {}

    def next(self, now: float, own: Collection[int], ids: Iterable[str]) -> int:
        """`own`: those that are never given away; `ids`: who is in the run or waits to be."""
        self._given = {number: when for number, when in self._given.items() if now - when < _RESERVED_SECONDS}
        taken = {int(match[1]) for id in ids if (match := _NUMBERED.fullmatch(id))} | self._given.keys() | set(own)
        number = next(number for number in range(len(taken) + 1) if number not in taken)
        self._given[number] = now
        return number
