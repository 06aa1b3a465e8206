"""What a coordinator does for who is no member: says what its run is about, and takes events from other machines.

    description = ask(CoordinatorAddress(address="10.0.0.1", port=4000, token=token), timeout_seconds=30)
    experiment = parse("\\n".join(description.lines))
    ...                                                                              # join, train
    hand_over(where, id="node-3", number=3, file=run / "events" / "rank-3.jsonl")    # there, at the end
    accounts = Accounts(run / "events", own=[0]); accounts.take(handover)            # where the run was started

A run has a description when the first of its own members is there, so that what others must have in common with it is
known by then. Events are handed over so that the run's directory, its summary and its report have everybody. They come
in parts that are as short as all frames, from who knows the token; nothing but lines of JSON is taken. Machines have
different clocks: times are shifted.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import errno
import json
import re
import time
import zlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from minga.errors import PeerTimeout, ProtocolError, Refused
from minga.membership.messages import Description, Handover, Inquiry, Received, Waiting
from minga.membership.protocol import CoordinatorAddress
from minga.net.greeting import check_token
from minga.net.strict import LONGEST_TEXT, shown

__all__ = ["Accounts", "Numbers", "ask", "hand_over"]

_PAUSE_SECONDS = 0.3
# The interface that was asked for does not lead there, and won't in a second.
_HOPELESS = (errno.EINVAL, errno.EADDRNOTAVAIL)
_NUMBERED = re.compile(r"node-(\d{1,9})")
# Who has asked for a number says hello when its data is loaded. Later than that it may find the number taken.
_RESERVED_SECONDS = 120.0
# Of lines, before they are packed; a frame has at most a mebibyte.
_PART_BYTES = 1 << 19
_LONGEST_LINE = 1 << 16
_MOST_BYTES = 1 << 30
_MOST_NODES = 100_000
_BOOT = Path("/proc/sys/kernel/random/boot_id")


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


def hand_over(where: CoordinatorAddress, *, id: str, number: int, file: Path) -> None:
    """Send a file of events; `MingaError` or `OSError` if nobody takes it."""

    async def send() -> None:
        async with where.connected() as connection:
            parts = list(_parts(file))
            for place, part in enumerate(parts):
                text = base64.b64encode(zlib.compress(part)).decode("ascii")
                handover = Handover(
                    id=id,
                    number=number,
                    boot=_boot(),
                    clock=time.perf_counter(),
                    packed=tuple(text[begin : begin + LONGEST_TEXT] for begin in range(0, len(text), LONGEST_TEXT)),
                    last=place == len(parts) - 1,
                )
                await connection.ask(handover, Received)

    asyncio.run(send())


def _parts(file: Path) -> Iterator[bytes]:
    """Whole lines, some at a time; at least one part, so that the other side knows that there is nothing more."""
    part = bytearray()
    with file.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n") or len(line) > _LONGEST_LINE:  # cut short by a kill, or no line of ours
                continue
            if part and len(part) + len(line) > _PART_BYTES:
                yield bytes(part)
                part.clear()
            part += line
    yield bytes(part)


def _boot() -> str:
    """The same on all processes that share a clock."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


class Accounts:
    """Where a run was started: files of events of nodes elsewhere, beside those of the nodes here."""

    def __init__(self, folder: Path, *, own: Collection[int]) -> None:
        """`own`: numbers of nodes that are here, and write their files themselves."""
        self._folder = folder
        self._own = frozenset(own)
        self._bytes = 0
        self.complete: set[str] = set()
        """Ids of nodes that have handed over everything."""

    def take(self, handover: Handover) -> None:
        """Add to the node's file; `ProtocolError` for what is no events."""
        if handover.number in self._own or handover.number >= _MOST_NODES:
            raise ProtocolError(f"events of node {handover.number} are not taken from others")
        shift = 0.0 if handover.boot == _boot() != "unknown" else time.perf_counter() - handover.clock
        lines = [_event(line, shift) for line in _unpack(handover).splitlines()]
        content = "".join(lines)
        self._bytes += len(content)
        if self._bytes > _MOST_BYTES:
            raise ProtocolError(f"more than {_MOST_BYTES} bytes of events are not taken")
        with (self._folder / f"rank-{handover.number}.jsonl").open("a", encoding="utf-8") as file:
            file.write(content)
        if handover.last:
            self.complete.add(handover.id)

    def missing(self, finished: set[str]) -> set[str]:
        """Who has finished elsewhere, and is expected to hand over its events soon."""
        own = {f"node-{number}" for number in self._own}
        return finished - own - self.complete


def _unpack(handover: Handover) -> str:
    try:
        unpacking = zlib.decompressobj()
        content = unpacking.decompress(base64.b64decode("".join(handover.packed), validate=True), 2 * _PART_BYTES)
        if unpacking.unconsumed_tail or not unpacking.eof:
            raise ProtocolError(f"a part of more than {2 * _PART_BYTES} bytes of events, or one that was cut short")
        return content.decode("utf-8")
    except (binascii.Error, zlib.error, UnicodeDecodeError) as error:
        raise ProtocolError(f"events that can't be unpacked: {shown(str(error))}") from None


def _event(line: str, shift: float) -> str:
    """The line, on this machine's clock."""
    try:
        event = json.loads(line)
        if not isinstance(event, dict) or not isinstance(event["event"], str):
            raise ValueError("no object with an event's name")
        event["time"] = float(event["time"]) + shift
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ProtocolError(f"a line that is no event: {shown(line)} ({shown(str(error))})") from None
    return (json.dumps(event) if shift else line) + "\n"
