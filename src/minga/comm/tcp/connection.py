"""One rank's end of the connection to another one: a queue of what goes out, and what comes in, taken apart.

A connection exists before its socket does: what is sent until then waits in the queue. Nothing here blocks, and nothing
here is for several threads at a time: the lock of the `Endpoint` guards it.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from minga.comm.tcp.frames import EXPECTED_BYTES, HEADER, SHORT_BYTES, WINDOW_BYTES, Kind, cost
from minga.comm.tcp.mailbox import Landing, Mailbox, Operation
from minga.errors import PeerLost, PeerWrong
from minga.net.sockets import READ, WRITE, Socket

__all__ = ["Connection"]

_NOTHING = memoryview(b"")


@dataclass(slots=True)
class _Frame:
    """Something to be sent: a header, and the message of an operation."""

    parts: list[memoryview]
    operation: Operation | None

    def sent(self, count: int) -> bool:
        """The kernel took `count` bytes more; whether that was all."""
        for index, part in enumerate(self.parts):
            taken = min(count, len(part))
            self.parts[index] = part[taken:]
            count -= taken
        return not len(self.parts[0]) and not len(self.parts[1])


class Connection:
    """Between this rank, `own`, and another one."""

    def __init__(self, own: int, rank: int, mailbox: Mailbox) -> None:
        self.rank = rank
        self.socket: Socket | None = None
        self.lost: PeerLost | None = None
        """Why nothing comes and goes here any more."""
        self.left = False
        """Whether the other side has said goodbye."""
        self.send_error: OSError | None = None
        """Why nothing can be sent any more, although there may be something to read."""
        self.events = 0
        """What the poller watches for."""
        self._own = own
        self._mailbox = mailbox
        self._queue: deque[_Frame] = deque()
        self._permits: Counter[int] = Counter()
        self._held: defaultdict[int, deque[Operation]] = defaultdict(deque)
        """Announced messages that wait for a permit, by tag."""
        self._uncredited = 0
        """Bytes that were sent unasked and have not been given back as credit."""
        self.received = 0
        """Bytes that have come in."""
        self._stage = memoryview(bytearray(SHORT_BYTES + HEADER.size))
        self._begin = self._end = 0
        self._landing: Landing | None = None
        self._missing = _NOTHING
        """The part of the message now coming in that is not there yet."""
        self._unasked = False

    # Sending

    def send(self, operation: Operation) -> None:
        tag, length = operation.tag, len(operation.view)
        longest, window = (EXPECTED_BYTES, EXPECTED_BYTES) if operation.expected else (SHORT_BYTES, WINDOW_BYTES)
        if self._held[tag]:
            self._hold(operation)
        elif length <= longest and self._uncredited + cost(length) <= window:
            self._uncredited += cost(length)
            self._put(Kind.UNASKED, operation)
        elif self._permits[tag]:
            self._permits[tag] -= 1
            self._put(Kind.MESSAGE, operation)
        else:
            self._hold(operation)

    def _hold(self, operation: Operation) -> None:
        self._held[operation.tag].append(operation)
        self.say(Kind.ANNOUNCE, operation.tag, len(operation.view))

    def say(self, kind: int, tag: int = 0, length: int = 0) -> None:
        """Send a frame without a message behind it."""
        self._queue.append(_Frame([memoryview(HEADER.pack(kind, False, tag, length)), _NOTHING], None))
        self.flush()

    def _put(self, kind: int, operation: Operation, *, announced: bool = False) -> None:
        header = HEADER.pack(kind, announced, operation.tag, len(operation.view))
        self._queue.append(_Frame([memoryview(header), operation.view], operation))
        self.flush()

    def flush(self) -> None:
        """Give the kernel what it takes now."""
        while self._queue and self.socket is not None and self.send_error is None:
            frame = self._queue[0]
            try:
                count = self.socket.send(frame.parts)
            except OSError as error:
                # Not raised: this may be in the middle of something, and what the other side said last is to be read.
                self.send_error = error
                return
            if not count:
                return
            if frame.sent(count):
                self._queue.popleft()
                if frame.operation is not None:
                    frame.operation.end(self._own)
            elif frame.operation is not None:
                frame.operation.touch()

    @property
    def idle(self) -> bool:
        """Whether everything has been sent."""
        return not self._queue

    @property
    def wanted(self) -> int:
        """What the poller should watch for."""
        if self.socket is None:
            return 0
        return READ | (WRITE if self._queue and self.send_error is None else 0)

    # Receiving

    def read(self) -> bool:
        """Take in what is there; False when the other side has ended. `PeerWrong` if it breaks the protocol."""
        socket = self.socket
        while socket is not None:
            direct = len(self._missing)
            view = self._missing if direct else self._stage[self._end :]
            received = socket.receive_into(view)
            if received is None:
                break
            if received == 0:
                return False
            self.received += received
            if direct:
                self._fill(received)
            else:
                self._end += received
                self._take_apart()
            if received < len(view) and not socket.encrypted:
                break
        if socket is not None:
            socket.wake_late(len(self._missing))
        return True

    def _take_apart(self) -> None:
        while True:
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
        if kind == Kind.UNASKED:
            self._land(self._mailbox.unasked(self.rank, tag, length), unasked=True)
        elif kind == Kind.MESSAGE:
            self._land(self._mailbox.permitted(self.rank, tag, length, announced=announced), unasked=False)
        elif kind == Kind.ANNOUNCE:
            self._mailbox.announced(self.rank, tag, length)
        elif kind == Kind.PERMIT:
            if self._held[tag]:
                self._put(Kind.MESSAGE, self._held[tag].popleft(), announced=True)
            else:
                self._permits[tag] += 1
        elif kind == Kind.CREDIT:
            self._uncredited -= length
        elif kind == Kind.GOODBYE:
            self.left = True
        else:
            what = f"rank {self._own}: rank {self.rank} sent a frame of kind {kind}, which is none"
            raise PeerWrong(what, rank=self.rank)

    def _land(self, landing: Landing, *, unasked: bool) -> None:
        assert landing.view is not None
        self._landing, self._missing, self._unasked = landing, landing.view, unasked
        if not len(self._missing):
            self._fill(0)

    def _fill(self, count: int) -> None:
        landing = self._landing
        assert landing is not None
        self._missing = self._missing[count:]
        if len(self._missing):
            landing.touch()
        else:
            self._landing, self._missing = None, _NOTHING
            self._mailbox.landed(landing, self.rank, unasked=self._unasked)

    # The end

    def operations(self) -> Iterator[Operation]:
        """Everything that has not been sent, and what is being received."""
        yield from (frame.operation for frame in self._queue if frame.operation is not None)
        for held in self._held.values():
            yield from held
        if isinstance(self._landing, Operation):
            yield self._landing

    def drop(self) -> None:
        """Let go of everything; who owns the socket closes it."""
        self._queue.clear()
        self._held.clear()
        self._landing, self._missing = None, _NOTHING
        self.socket = None
