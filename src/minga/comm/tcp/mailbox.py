"""Which message goes into which receive: by source and tag, in the order of sending and of posting.

It knows no sockets. Frames come in through its methods, and `replies` are the frames to be sent back. What `unasked`
and `permitted` return is where the bytes belong; `landed` is called when they are all there. What breaks the protocol
raises `PeerWrong`: the connection that it came over is of no use any more.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from minga.comm.tcp.frames import EXPECTED_BYTES, SHORT_BYTES, WINDOW_BYTES, Kind, cost
from minga.comm.transport import Pending
from minga.errors import PeerLost, PeerWrong, UnsupportedError, WrongLength

if TYPE_CHECKING:
    from minga.comm.tcp.endpoint import Endpoint

__all__ = ["Arrival", "Landing", "Mailbox", "Operation"]

Item = TypeVar("Item")

# A peer has that many messages announced and nobody asks for them: one of the two is broken.
_MOST_ANNOUNCED = 1 << 16


@dataclass(eq=False)
class Operation(Pending):
    """A send or a receive under way. The lock of its endpoint guards all of it."""

    endpoint: Endpoint
    peer: int | None
    tag: int
    view: memoryview
    sends: bool
    expected: bool
    """Whether both sides know that it comes, so that nobody has to ask for it."""
    unattended: bool = False
    """Whether somebody must see to it that it goes on while nobody waits for it."""
    touched: float = 0.0
    """When it last came forward: a long message over a slow link is no hanging one."""
    outcome: int | PeerLost | None = None
    """Who sent it, or why it failed, once it is done."""

    def wait(self, patience: float = 1.0) -> int:
        if self.outcome is None:
            self.endpoint.wait(self, patience)
        if isinstance(self.outcome, PeerLost):
            # A new one each time: several threads may raise it, and each adds its traceback.
            raise type(self.outcome)(*self.outcome.args, rank=self.outcome.rank) from self.outcome.__cause__
        assert self.outcome is not None
        return self.outcome

    @property
    def done(self) -> bool:
        return self.outcome is not None

    def cancel(self) -> None:
        if self.sends:
            raise UnsupportedError("a send can't be cancelled: part of it may have gone already")
        self.endpoint.cancel(self)

    def touch(self) -> None:
        self.touched = time.monotonic()

    def end(self, outcome: int | PeerLost) -> None:
        if self.outcome is None:
            self.outcome = outcome
            self.endpoint.ended(self)

    def __str__(self) -> str:
        peer = "any rank" if self.peer is None else f"rank {self.peer}"
        return f"{'send to' if self.sends else 'receive from'} {peer}"


@dataclass(eq=False)
class Arrival:
    """A message that nobody has asked for yet: announced, on its way, or here."""

    source: int
    tag: int
    length: int
    view: memoryview | None = None
    unasked: bool = False
    complete: bool = False
    taker: Operation | None = None
    """A receive that was posted while the message was coming in."""

    def touch(self) -> None:
        if self.taker is not None:
            self.taker.touch()


Landing = Operation | Arrival


@dataclass
class _GivenUp:
    """The place of a receive that was cancelled after its permit had gone out: the sender may still use it."""

    length: int


@dataclass
class _Box:
    """Everything of one tag."""

    posted: list[Operation] = field(default_factory=list)
    """Receives that nobody has a permit for, in the order of posting."""
    promised: defaultdict[int, deque[Operation | _GivenUp]] = field(default_factory=lambda: defaultdict(deque))
    """Receives with a permit, by source; those given up last."""
    unannounced: Counter[int] = field(default_factory=Counter)
    """Permits for which no message has been heard of yet."""
    arrived: list[Arrival] = field(default_factory=list)


class Mailbox:
    """One rank's receives over one set of connections."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self.replies: list[tuple[int, int, int, int]] = []
        """What is to be sent: to whom, the kind of the frame, tag, length."""
        self._boxes: defaultdict[int, _Box] = defaultdict(_Box)
        self._kept: Counter[int] = Counter()
        """By source: how much is here that came unasked and that nobody has asked for yet."""
        self._taken: Counter[int] = Counter()
        """By source: how much of what came unasked was taken, and has not been given back as credit."""

    def post(self, operation: Operation) -> None:
        box = self._boxes[operation.tag]
        for index, arrival in enumerate(box.arrived):
            if operation.peer in (None, arrival.source) and arrival.taker is None:
                self._take(box, index, operation)
                return
        peer = operation.peer
        if operation.expected or peer is None or len(operation.view) <= SHORT_BYTES:
            box.posted.append(operation)
        elif any(earlier.peer in (None, peer) for earlier in box.posted):
            box.posted.append(operation)  # another one comes first; it gets its permit when a message is announced
        else:
            self._promise(box, peer, operation)

    def _take(self, box: _Box, index: int, operation: Operation) -> None:
        arrival = box.arrived[index]
        self._check_length(arrival.source, arrival.length, operation)
        if arrival.view is None:
            del box.arrived[index]
            self._send_permit(box, arrival.source, operation)
        elif arrival.complete:
            del box.arrived[index]
            self._deliver(arrival, operation)
        else:
            arrival.taker = operation

    def _promise(self, box: _Box, source: int, operation: Operation) -> None:
        places = box.promised[source]
        for index, place in enumerate(places):
            if isinstance(place, _GivenUp):
                places[index] = operation
                return
        box.unannounced[source] += 1
        self._send_permit(box, source, operation)

    def _send_permit(self, box: _Box, source: int, operation: Operation) -> None:
        places = box.promised[source]
        given_up = sum(isinstance(place, _GivenUp) for place in places)
        places.insert(len(places) - given_up, operation)
        self.replies.append((source, Kind.PERMIT, operation.tag, 0))

    def announced(self, source: int, tag: int, length: int) -> None:
        box = self._boxes[tag]
        if box.unannounced[source]:
            box.unannounced[source] -= 1  # its permit is on the way
            return
        operation = _pop_first(box.posted, source)
        if operation is not None:
            self._checked(box, source, length, operation)
            self._send_permit(box, source, operation)
            return
        box.arrived.append(Arrival(source, tag, length))
        if len(box.arrived) > _MOST_ANNOUNCED:
            raise self._wrong(source, f"has announced message after message of tag {tag} that nobody asks for")

    def unasked(self, source: int, tag: int, length: int) -> Landing:
        """A message begins that is short or expected."""
        if length > EXPECTED_BYTES:
            raise self._wrong(source, f"sent {length} bytes unasked, where {EXPECTED_BYTES} are allowed")
        box = self._boxes[tag]
        places = box.promised[source]
        if places and isinstance(places[0], Operation):
            self._check_length(source, length, places[0])  # it waits for a long message, so this raises
        operation = _pop_first(box.posted, source)
        if operation is not None:
            self._checked(box, source, length, operation)
            return operation
        self._kept[source] += cost(length)
        if self._kept[source] > EXPECTED_BYTES:  # senders keep count too: this one does not mean well
            raise self._wrong(source, f"has sent {self._kept[source]} bytes unasked that nobody has taken")
        arrival = Arrival(source, tag, length, memoryview(bytearray(length)), unasked=True)
        box.arrived.append(arrival)
        return arrival

    def permitted(self, source: int, tag: int, length: int, *, announced: bool) -> Landing:
        """A message begins that should have a permit."""
        box = self._boxes[tag]
        places = box.promised[source]
        if not places:
            raise self._wrong(source, f"sent a message of tag {tag} without a permit")
        if not announced:
            box.unannounced[source] -= 1
        place = places.popleft()
        if isinstance(place, _GivenUp):
            operation = _pop_first(box.posted, source)
            if operation is not None:
                place = operation
        if isinstance(place, Operation):
            self._checked(box, source, length, place)
            return place
        if length > place.length:
            raise self._wrong_length(source, length, place.length)
        arrival = Arrival(source, tag, length, memoryview(bytearray(length)))
        box.arrived.append(arrival)
        return arrival

    def landed(self, landing: Landing, source: int, *, unasked: bool) -> None:
        """All of it is there."""
        if isinstance(landing, Operation):
            if unasked:
                self._give_back(source, len(landing.view))
            landing.end(source)
            return
        landing.complete = True
        if landing.taker is not None:
            self._boxes[landing.tag].arrived.remove(landing)
            self._deliver(landing, landing.taker)

    def _deliver(self, arrival: Arrival, operation: Operation) -> None:
        assert arrival.view is not None
        if arrival.length:
            operation.view[:] = arrival.view
        if arrival.unasked:
            self._kept[arrival.source] -= cost(arrival.length)
            self._give_back(arrival.source, arrival.length)
        operation.end(arrival.source)

    def _give_back(self, source: int, length: int) -> None:
        self._taken[source] += cost(length)
        if self._taken[source] >= WINDOW_BYTES // 2:
            self.replies.append((source, Kind.CREDIT, 0, self._taken.pop(source)))

    def cancel(self, operation: Operation) -> None:
        box = self._boxes[operation.tag]
        if operation in box.posted:
            box.posted.remove(operation)
            return
        for places in box.promised.values():
            if operation in places:
                places.remove(operation)
                places.append(_GivenUp(len(operation.view)))
        for arrival in box.arrived:
            if arrival.taker is operation:
                arrival.taker = None

    def lose(self, source: int, error: PeerLost, *, alarming: bool) -> None:
        """Nothing comes from `source` any more, besides what is here. `alarming`: who waits for anybody fails too."""
        for box in self._boxes.values():
            lost, box.arrived = _parted(box.arrived, lambda each: each.source == source and not each.complete)
            failed, box.posted = _parted(
                box.posted, lambda each: each.peer == source or (alarming and each.peer is None)
            )
            failed += [each.taker for each in lost if each.taker is not None]
            failed += [place for place in box.promised.pop(source, ()) if isinstance(place, Operation)]
            for operation in failed:
                operation.end(error)

    def _checked(self, box: _Box, source: int, length: int, operation: Operation) -> None:
        try:
            self._check_length(source, length, operation)
        except WrongLength:
            box.posted.insert(0, operation)  # so that it fails with the rest of its source
            if operation.peer is None:
                operation.peer = source
            raise

    def _check_length(self, source: int, length: int, operation: Operation) -> None:
        if length != len(operation.view):
            raise self._wrong_length(source, length, len(operation.view))

    def _wrong_length(self, source: int, length: int, expected: int) -> WrongLength:
        what = f"rank {source} sent {length} bytes where {expected} were expected"
        return WrongLength(f"rank {self._rank}: {what}", rank=source)

    def _wrong(self, source: int, what: str) -> PeerWrong:
        return PeerWrong(f"rank {self._rank}: rank {source} {what}", rank=source)


def _parted(items: list[Item], condition: Callable[[Item], bool]) -> tuple[list[Item], list[Item]]:
    return [item for item in items if condition(item)], [item for item in items if not condition(item)]


def _pop_first(posted: list[Operation], source: int) -> Operation | None:
    for index, operation in enumerate(posted):
        if operation.peer in (None, source):
            return posted.pop(index)
    return None
