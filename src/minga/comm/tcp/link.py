"""The frames between two ranks over one line: a queue of what goes out, and what comes in, taken apart.

A link exists before its line does: what is sent until then waits in the queue. Nothing here blocks.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from typing import Protocol

from minga.comm.tcp.frames import ANNOUNCE, EAGER, GOODBYE, HEADER, MESSAGE, SHORT_BYTES, WINDOW_BYTES, cost
from minga.comm.tcp.line import READ, WRITE, Line
from minga.comm.tcp.mailbox import Landing
from minga.comm.tcp.operation import Operation

__all__ = ["Link", "Listener", "cost"]

_NOTHING = memoryview(b"")


class Listener(Protocol):
    """Who hears what comes in over a link."""

    def place(self, link: Link, kind: int, announced: bool, tag: int, length: int) -> Landing | None:
        """Where the bytes of a message belong; None: it waits until somebody asks for it."""

    def landed(self, link: Link, landing: Landing, *, eager: bool) -> None: ...

    def word(self, link: Link, kind: int, tag: int, length: int) -> None:
        """A frame without a message behind it."""


class _Frame:
    """Something to be sent: a header, and the operation whose bytes follow."""

    __slots__ = ("operation", "parts")

    def __init__(self, header: bytes, operation: Operation | None) -> None:
        self.parts = [memoryview(header), _NOTHING if operation is None else operation.view]
        self.operation = operation

    def sent(self, count: int) -> bool:
        """The kernel took `count` bytes more; whether that was all."""
        for index, part in enumerate(self.parts):
            taken = min(count, len(part))
            self.parts[index] = part[taken:]
            count -= taken
        return not len(self.parts[0]) and not len(self.parts[1])


class Link:
    """One rank's end of the connection to another one."""

    def __init__(self, rank: int, listener: Listener, *, asked: bool) -> None:
        """`asked`: the other side always asks for what is sent here, so nothing needs a permit."""
        self.rank = rank
        self.line: Line | None = None
        self.left = False
        """Whether the other side has said goodbye."""
        self.ailment: OSError | None = None
        """Why nothing can be sent any more."""
        self.events = 0
        """What the poller watches for."""
        self._listener = listener
        self._asked = asked
        self._queue: deque[_Frame] = deque()
        self._permits: Counter[int] = Counter()
        self._held: defaultdict[int, deque[Operation]] = defaultdict(deque)
        self._unasked = 0
        self._mute = False
        self.progress = 0
        """Bytes that have come in."""
        self._stage = memoryview(bytearray(SHORT_BYTES + HEADER.size))
        self._begin = self._end = 0
        self._landing: Landing | None = None
        self._missing = _NOTHING
        """The part of the message now coming in that is not there yet."""
        self._eager = False
        self._stuck: tuple[int, bool, int, int] | None = None

    # Sending

    def send(self, operation: Operation) -> None:
        tag, length = operation.tag, len(operation.view)
        if self._asked:
            self._put(MESSAGE, False, tag, operation)
        elif self._held[tag]:
            self._hold(operation)
        elif length <= SHORT_BYTES and self._unasked + cost(length) <= WINDOW_BYTES:
            self._unasked += cost(length)
            self._put(EAGER, False, tag, operation)
        elif self._permits[tag]:
            self._permits[tag] -= 1
            self._put(MESSAGE, False, tag, operation)
        else:
            self._hold(operation)

    def _hold(self, operation: Operation) -> None:
        self._held[operation.tag].append(operation)
        self.say(ANNOUNCE, operation.tag, len(operation.view))

    def permitted(self, tag: int) -> None:
        if self._held[tag]:
            self._put(MESSAGE, True, tag, self._held[tag].popleft())
        else:
            self._permits[tag] += 1

    def credited(self, count: int) -> None:
        self._unasked -= count

    def say(self, kind: int, tag: int = 0, length: int = 0) -> None:
        self._queue.append(_Frame(HEADER.pack(kind, False, tag, length), None))
        self.flush()

    def _put(self, kind: int, announced: bool, tag: int, operation: Operation) -> None:
        self._queue.append(_Frame(HEADER.pack(kind, announced, tag, len(operation.view)), operation))
        self.flush()

    def flush(self) -> None:
        """Give the kernel what it takes now."""
        while self._queue and self.line is not None and not self._mute:
            frame = self._queue[0]
            try:
                count = self.line.send(frame.parts)
            except OSError as error:
                # Not raised: this may be in the middle of something, and the other side's last words are to be read.
                self.ailment = error
                self._mute = True
                return
            if not count:
                return
            if frame.sent(count):
                self._queue.popleft()
                if frame.operation is not None:
                    frame.operation.finish(frame.operation.channel.rank)
            elif frame.operation is not None:
                frame.operation.touch()

    @property
    def idle(self) -> bool:
        """Whether everything has been sent."""
        return not self._queue

    @property
    def wanted(self) -> int:
        """What the poller should watch for."""
        if self.line is None:
            return 0
        return (0 if self._stuck else READ) | (WRITE if self._queue and not self._mute else 0)

    # Receiving

    def read(self) -> bool:
        """Take in what is there; False when the other side has ended."""
        line = self.line
        while line is not None and self._stuck is None:
            direct = len(self._missing)
            view = self._missing if direct else self._stage[self._end :]
            received = line.receive_into(view)
            if received is None:
                break
            if received == 0:
                return False
            self.progress += received
            if direct:
                self._fill(received)
            else:
                self._end += received
                self._take_apart()
            if received < len(view) and not line.encrypted:
                break
        if line is not None:
            line.be_patient(len(self._missing))
        return True

    def resume(self) -> None:
        """Somebody may have asked for the message that was waiting."""
        if self._stuck is not None:
            kind, announced, tag, length = self._stuck
            self._stuck = None
            self._open(kind, announced, tag, length)
            self._take_apart()
            if self.line is not None:
                self.line.be_patient(len(self._missing))

    def _take_apart(self) -> None:
        while self._stuck is None:
            here = self._end - self._begin
            if self._landing is not None:
                count = min(here, len(self._missing))
                self._missing[:count] = self._stage[self._begin : self._begin + count]
                self._begin += count
                self._fill(count)
                if self._landing is not None:
                    break
            elif here >= HEADER.size:
                kind, announced, tag, length = HEADER.unpack_from(self._stage, self._begin)
                self._begin += HEADER.size
                self._open(kind, bool(announced), tag, length)
            else:
                break
        rest = self._end - self._begin
        if rest and self._begin:
            self._stage[:rest] = bytes(self._stage[self._begin : self._end])
        self._begin, self._end = 0, rest

    def _open(self, kind: int, announced: bool, tag: int, length: int) -> None:
        if kind in (EAGER, MESSAGE):
            landing = self._listener.place(self, kind, announced, tag, length)
            if landing is None:
                self._stuck = (kind, announced, tag, length)
                return
            assert landing.view is not None
            self._landing, self._missing, self._eager = landing, landing.view, kind == EAGER
            if not length:
                self._fill(0)
        elif kind == GOODBYE:
            self.left = True
        else:
            self._listener.word(self, kind, tag, length)

    def _fill(self, count: int) -> None:
        landing = self._landing
        assert landing is not None
        self._missing = self._missing[count:]
        if len(self._missing):
            landing.touch()
        else:
            self._landing, self._missing = None, _NOTHING
            self._listener.landed(self, landing, eager=self._eager)

    # The end

    def operations(self) -> Iterator[Operation]:
        """Everything that has not been sent, and what is being received."""
        yield from (frame.operation for frame in self._queue if frame.operation is not None)
        for held in self._held.values():
            yield from held
        if isinstance(self._landing, Operation):
            yield self._landing

    def drop(self) -> None:
        """Let go of everything; who owns the line closes it."""
        self._queue.clear()
        self._held.clear()
        self._landing, self._missing, self._stuck = None, _NOTHING, None
        self.line = None
