"""Asking a coordinator what its run is about, before joining.

    description = ask(CoordinatorAddress(address="10.0.0.1", port=4000, token=token), timeout_seconds=30)
    experiment = parse("\\n".join(description.lines))

A run has a description when the first of its own members is there, so that what others must have in common with it is
known by then.
"""

from __future__ import annotations

import asyncio
import errno
import re
import time
from collections.abc import Collection, Iterable

from minga.errors import PeerTimeout, ProtocolError, Refused
from minga.membership.messages import Description, Inquiry, Waiting
from minga.membership.protocol import CoordinatorAddress
from minga.net.greeting import check_token

__all__ = ["Numbers", "ask"]

_PAUSE_SECONDS = 0.3
# The interface that was asked for does not lead there, and won't in a second.
_HOPELESS = (errno.EINVAL, errno.EADDRNOTAVAIL)
_NUMBERED = re.compile(r"node-(\d{1,9})")
# Who has asked for a number says hello when its data is loaded. Later than that it may find the number taken.
_RESERVED_SECONDS = 120.0


def ask(where: CoordinatorAddress, *, timeout_seconds: float = 30.0) -> Description:
    """The run's description, as soon as there is one; `Refused` or `PeerTimeout` with what is in the way."""
    check_token(where.token)
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            return asyncio.run(_ask(where))
        except ProtocolError as error:
            raise Refused(where.explain(error)) from None
        except (PeerTimeout, OSError) as error:
            trouble = where.explain(error)
            if isinstance(error, OSError) and error.errno in _HOPELESS:
                raise PeerTimeout(trouble) from None
        if time.monotonic() > deadline:
            raise PeerTimeout(f"{trouble} (tried for {timeout_seconds:g} s)")
        time.sleep(_PAUSE_SECONDS)


async def _ask(where: CoordinatorAddress) -> Description:
    async with where.connected() as connection:
        answer: Description | Waiting = await connection.ask(Inquiry(), Description, Waiting)
    if isinstance(answer, Waiting):  # it answers, but has nothing to describe yet
        raise PeerTimeout(answer.message)
    return answer


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
