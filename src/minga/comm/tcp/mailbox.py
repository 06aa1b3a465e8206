"""Which message goes into which receive: by source and tag, in the order of sending and of posting.

It knows no sockets. Frames come in through its methods, and `permit` and `taken` tell what is to be sent back. What
`eager` and `message` return is where the bytes belong; `landed` is called when they are all there.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from minga.comm.tcp.frames import SHORT_BYTES, WINDOW_BYTES, cost
from minga.comm.tcp.operation import Operation
from minga.errors import PeerLost

__all__ = ["Arrival", "Landing", "Mailbox", "Nonsense", "OfAnotherLength"]

Item = TypeVar("Item")

# A peer has that many messages announced and nobody asks for them: one of the two is broken.
_MOST_UNASKED = 1 << 16


class Nonsense(Exception):
    """What a rank sent can't be; its connection is of no use any more."""

    def __init__(self, source: int, what: str) -> None:
        super().__init__(f"rank {source} {what}")
        self.source = source


class OfAnotherLength(Nonsense):
    """It is longer or shorter than what was expected."""

    def __init__(self, source: int, length: int, expected: int) -> None:
        super().__init__(source, f"sent {length} bytes where {expected} were expected")


@dataclass(eq=False)
class Arrival:
    """A message that nobody has asked for yet: announced, on its way, or here."""

    source: int
    tag: int
    length: int
    view: memoryview | None = None
    short: bool = False
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
    """One rank's receives of one channel."""

    def __init__(self, permit: Callable[[int, int], None], taken: Callable[[int, int], None], *, asked: bool) -> None:
        """`permit(source, tag)`, `taken(source, bytes)`. `asked`: everything that comes here is received soon, in the
        same order, as in a gathering, so no permits are needed."""
        self._permit = permit
        self._taken = taken
        self._asked = asked
        self._boxes: defaultdict[int, _Box] = defaultdict(_Box)
        self._kept: Counter[int] = Counter()
        """By source: how much is here of short messages that nobody has asked for."""

    def post(self, operation: Operation) -> None:
        box = self._boxes[operation.tag]
        for index, arrival in enumerate(box.arrived):
            if operation.peer in (None, arrival.source) and arrival.taker is None:
                self._take(box, index, operation)
                return
        peer = operation.peer
        if self._asked or peer is None or len(operation.view) <= SHORT_BYTES:
            box.posted.append(operation)
        elif any(earlier.peer in (None, peer) for earlier in box.posted):
            box.posted.append(operation)  # another one comes first; it gets its permit when a message is announced
        else:
            self._promise(box, peer, operation)

    def _take(self, box: _Box, index: int, operation: Operation) -> None:
        arrival = box.arrived[index]
        _check_length(arrival.source, arrival.length, operation)
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
        self._permit(source, operation.tag)

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
        if len(box.arrived) > _MOST_UNASKED:
            raise Nonsense(source, f"has announced message after message of tag {tag} that nobody asks for")

    def eager(self, source: int, tag: int, length: int) -> Landing:
        if length > SHORT_BYTES:
            raise Nonsense(source, f"sent {length} bytes unasked, where {SHORT_BYTES} are allowed")
        box = self._boxes[tag]
        places = box.promised[source]
        if places and isinstance(places[0], Operation):
            _check_length(source, length, places[0])  # it waits for a long message, so this raises
        operation = _pop_first(box.posted, source)
        if operation is not None:
            self._checked(box, source, length, operation)
            return operation
        self._kept[source] += cost(length)
        if self._kept[source] > WINDOW_BYTES:  # senders keep count too, so this one does not mean well
            raise Nonsense(source, f"has sent more than {WINDOW_BYTES} bytes unasked that nobody has taken")
        arrival = Arrival(source, tag, length, memoryview(bytearray(length)), short=True)
        box.arrived.append(arrival)
        return arrival

    def message(self, source: int, tag: int, length: int, *, announced: bool) -> Landing | None:
        """None: it has to wait in its connection until it is asked for."""
        box = self._boxes[tag]
        if self._asked:
            operation = _pop_first(box.posted, source)
            if operation is not None:
                self._checked(box, source, length, operation)
            return operation
        places = box.promised[source]
        if not places:
            raise Nonsense(source, f"sent a message of tag {tag} without a permit")
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
            raise OfAnotherLength(source, length, place.length)
        arrival = Arrival(source, tag, length, memoryview(bytearray(length)))
        box.arrived.append(arrival)
        return arrival

    def landed(self, landing: Landing, source: int, *, eager: bool) -> None:
        """All of it is there."""
        if isinstance(landing, Operation):
            if eager:
                self._taken(source, len(landing.view))
            landing.finish(source)
            return
        landing.complete = True
        if landing.taker is not None:
            self._boxes[landing.tag].arrived.remove(landing)
            self._deliver(landing, landing.taker)

    def _deliver(self, arrival: Arrival, operation: Operation) -> None:
        assert arrival.view is not None
        if arrival.length:
            operation.view[:] = arrival.view
        if arrival.short:
            self._kept[arrival.source] -= cost(arrival.length)
            self._taken(arrival.source, arrival.length)
        operation.finish(arrival.source)

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
        """Nothing comes from `source` any more, besides what is here. `alarming`: who waits for anybody is told too."""
        for box in self._boxes.values():
            lost, box.arrived = _parted(box.arrived, lambda each: each.source == source and not each.complete)
            failed, box.posted = _parted(
                box.posted, lambda each: each.peer == source or (alarming and each.peer is None)
            )
            failed += [each.taker for each in lost if each.taker is not None]
            failed += [place for place in box.promised.pop(source, ()) if isinstance(place, Operation)]
            for operation in failed:
                operation.fail(error)

    def _checked(self, box: _Box, source: int, length: int, operation: Operation) -> None:
        try:
            _check_length(source, length, operation)
        except Nonsense:
            box.posted.insert(0, operation)  # so that it fails with the rest of its source
            if operation.peer is None:
                operation.peer = source
            raise


def _parted(items: list[Item], condition: Callable[[Item], bool]) -> tuple[list[Item], list[Item]]:
    return [item for item in items if condition(item)], [item for item in items if not condition(item)]


def _pop_first(posted: list[Operation], source: int) -> Operation | None:
    for index, operation in enumerate(posted):
        if operation.peer in (None, source):
            return posted.pop(index)
    return None


def _check_length(source: int, length: int, operation: Operation) -> None:
    if length != len(operation.view):
        raise OfAnotherLength(source, length, len(operation.view))
