"""Asking a coordinator what its run is about, before joining.

    description = ask("10.0.0.1", 4000, token, timeout_seconds=30)
    experiment = parse("\\n".join(description.lines))

A run has a description when the first of its own members is there, so that what others must have in common with it is
known by then.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Iterable

from minga.errors import PeerTimeout, ProtocolError, Refused
from minga.membership.greeting import check_token, greet_coordinator
from minga.membership.interfaces import explain
from minga.membership.messages import Description, Inquiry, Refusal, Waiting, from_dict, to_dict
from minga.membership.protocol import LONGEST_FRAME, Connection
from minga.membership.tls import Tls

__all__ = ["Numbers", "ask"]

_CONNECT_SECONDS = 2.0
_GREETING_SECONDS = 5.0
_PAUSE_SECONDS = 0.3
_NUMBERED = re.compile(r"node-(\d{1,9})")
# Who has asked for a number says hello when its data is loaded. Later than that it may find the number taken.
_RESERVED_SECONDS = 120.0


def ask(
    address: str,
    port: int,
    token: str,
    *,
    tls: Tls | None = None,
    source_address: str | None = None,
    timeout_seconds: float = 30.0,
) -> Description:
    """The run's description, as soon as there is one; `Refused` or `PeerTimeout` with what is in the way."""
    check_token(token)
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            return asyncio.run(_ask(address, port, token, tls, source_address))
        except _NotYet as not_yet:
            trouble = str(not_yet)
        except ssl.SSLError as error:
            trouble = f"no TLS connection to {address}:{port}: {error.reason or error}"
        except ProtocolError as error:
            raise Refused(f"{address}:{port}: {error}") from None
        except (OSError, TimeoutError) as error:
            trouble = explain(address, port, error, source_address)
        if time.monotonic() > deadline:
            raise PeerTimeout(f"{trouble} (tried for {timeout_seconds:g} s)")
        time.sleep(_PAUSE_SECONDS)


class _NotYet(Exception):
    """The coordinator answers, but has nothing to describe yet."""


async def _ask(address: str, port: int, token: str, tls: Tls | None, source_address: str | None) -> Description:
    async with asyncio.timeout(_CONNECT_SECONDS):
        reader, writer = await asyncio.open_connection(
            address,
            port,
            ssl=tls.client if tls is not None else None,
            server_hostname=address if tls is not None else None,
            local_addr=(source_address, 0) if source_address is not None else None,
        )
    connection = Connection(reader, writer)
    try:
        async with asyncio.timeout(_GREETING_SECONDS):
            await greet_coordinator(connection, token, None)
            connection.longest = LONGEST_FRAME
            connection.send(to_dict(Inquiry()))
            answer = from_dict(await connection.receive())
    finally:
        await connection.close(0.2)
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

    def next(self, now: float, first: int, ids: Iterable[str]) -> int:
        """One from `first` on; `ids`: who is in the run or waits to be."""
        self._given = {number: when for number, when in self._given.items() if now - when < _RESERVED_SECONDS}
        taken = {int(match[1]) for id in ids if (match := _NUMBERED.fullmatch(id))} | self._given.keys()
        number = next(number for number in range(first, first + len(taken) + 1) if number not in taken)
        self._given[number] = now
        return number
