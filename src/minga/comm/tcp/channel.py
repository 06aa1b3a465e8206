"""Messages between all ranks over connections of their own, moved on by whoever waits for one of them.

Who waits does the work itself: no other thread has to be woken first, which is most of what a short message costs.
While nobody waits and something long is under way, the `IOThread` does it.
"""

from __future__ import annotations

import select
import threading
import time
from typing import Protocol

from minga.comm.tcp.bell import Waker
from minga.comm.tcp.exchange import Exchange
from minga.comm.tcp.frames import SHORT_BYTES
from minga.comm.tcp.line import READ, Line
from minga.comm.tcp.operation import Operation
from minga.errors import PeerLost, PeerTimeout

__all__ = ["Channel", "Watcher"]


class Watcher(Protocol):
    """Who looks after a channel while nobody waits in it. None of these may come back to the channel at once."""

    def watch(self, channel: Channel) -> None: ...

    def unwatch(self, channel: Channel) -> None: ...

    def wanted(self, channel: Channel, rank: int) -> None:
        """Somebody wants to talk to `rank` over this channel."""

    def gone(self, channel: Channel, rank: int, error: PeerLost, alarming: bool) -> None:
        """The connection to `rank` has ended."""


class Channel:
    """One rank's side. All threads may use it."""

    def __init__(self, number: int, rank: int, size: int, watcher: Watcher, seconds: float, *, asked: bool) -> None:
        """`asked`: nothing is sent here that the others don't ask for soon, in the same order: no permits needed."""
        self.number = number
        self.rank = rank
        self._watcher = watcher
        self._seconds = seconds
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._poller = select.epoll()
        self._bell = Waker()
        self._poller.register(self._bell.descriptor, READ)
        self.descriptor = self._poller.fileno()
        self._exchange = Exchange(
            rank,
            size,
            self._poller,
            asked=asked,
            wanted=lambda other: watcher.wanted(self, other),
            gone=self._tell_gone,
        )
        self._aborted: str | None = None
        self._closed = False
        self._unattended = 0
        """How many operations must go on also while nobody waits."""
        self._waiting = 0
        self._awaited: dict[Operation, float] = {}
        """What somebody waits for, and since when."""
        self._driven = False
        self._watched = False

    def isend(self, view: memoryview, to: int, tag: int) -> Operation:
        operation = Operation(self, to, tag, view, sends=True)
        with self._lock:
            if not self._over(operation):
                self._exchange.send(operation)
                if not operation.done:
                    self._unattend(operation)
        return operation

    def ireceive(self, view: memoryview, source: int | None, tag: int) -> Operation:
        operation = Operation(self, source, tag, view, sends=False)
        with self._lock:
            if not self._over(operation):
                self._exchange.post(operation)
                # A short message is sent whether anybody reads or not; a long one goes on only if somebody does.
                if not operation.done and len(view) > SHORT_BYTES:
                    self._unattend(operation)
        return operation

    def cancel(self, operation: Operation) -> None:
        with self._lock:
            self._exchange.cancel(operation)
            self._attend_no_more(operation)

    def wait(self, operation: Operation, patience: float) -> int:
        """Until the operation is done; meanwhile all others go on too."""
        began, seconds = time.monotonic(), self._seconds * patience
        with self._lock:
            self._waiting += 1
            self._choose_watching()
            self._awaited[operation] = began
            try:
                while not operation.done:
                    if self._aborted is not None:
                        raise PeerLost(self._aborted)
                    left = max(began, operation.touched) + seconds - time.monotonic()
                    if left <= 0:
                        raise self._late(operation, seconds)
                    if self._driven:
                        self._changed.wait(left)
                    else:
                        self._drive(left)
            finally:
                self._waiting -= 1
                self._awaited.pop(operation, None)
                self._choose_watching()
                self._changed.notify_all()  # somebody else may have to drive now
            return operation.outcome

    def _drive(self, seconds: float) -> None:
        self._driven = True
        self._lock.release()
        try:
            events = self._poller.poll(seconds)
        finally:
            self._lock.acquire()
            self._driven = False
        self._serve(events)
        if self._waiting > 1 or self._closed:
            self._changed.notify_all()

    def _late(self, operation: Operation, seconds: float) -> PeerTimeout:
        if not operation.sends:
            self._exchange.cancel(operation)
        links = self._exchange.links.items()
        absent = [rank for rank, link in links if link.line is None and operation.peer in (None, rank)]
        which = f" Not connected: rank {', '.join(map(str, absent))}." if absent else ""
        return PeerTimeout(
            f"rank {self.rank} waited {seconds:g} s to {operation.whom}, in vain: slow, stopped, or not at the same "
            f"point of the program.{which} If it is only slow, raise cluster.timeout_seconds",
            rank=operation.peer,
        )

    def awaited(self, seconds: float) -> list[int]:
        """The ranks that somebody here has waited for so long, without a byte from them."""
        now = time.monotonic()
        with self._lock:
            return [
                operation.peer
                for operation, began in self._awaited.items()
                if operation.peer is not None and now - max(began, operation.touched) >= seconds
            ]

    # What others than the ranks' threads call

    def attach(self, rank: int, line: Line, first: bytes = b"") -> bool:
        """The connection to `rank` is there; `first` goes out before anything else. False: it is not wanted."""
        with self._lock:
            if self._closed or self._aborted is not None or not self._exchange.attach(rank, line, first):
                return False
            self._changed.notify_all()
            return True

    def lose(self, rank: int, error: PeerLost, *, alarming: bool) -> None:
        """There will be no connection to `rank`, if there is none yet."""
        with self._lock:
            if not self._closed and self._aborted is None:
                self._exchange.lose(rank, error, alarming=alarming)

    def abort(self, reason: str) -> None:
        """Every wait ends, now and later. Takes no lock, so that nothing holds it up; `wake_all` must follow."""
        if self._aborted is None:
            self._aborted = reason
        self._bell.ring()

    def wake_all(self) -> None:
        """Let those look who wait behind another one."""
        with self._lock:
            self._choose_watching()
            self._changed.notify_all()

    def attend(self) -> None:
        """Go on with everything if nobody waits here."""
        with self._lock:
            self._choose_watching()
            if not self._driven and not self._closed and self._aborted is None:
                self._serve(self._poller.poll(0))

    def look_at(self, rank: int) -> None:
        """The line to `rank` seems to have ended: hear what it said last."""
        with self._lock:
            link = self._exchange.links[rank]
            if link.line is not None and not self._driven and not self._closed and self._aborted is None:
                self._exchange.receive(link, to_the_end=True)

    def descriptor_of(self, rank: int) -> int | None:
        with self._lock:
            line = self._exchange.links[rank].line
            return None if line is None else line.descriptor

    def want_all(self) -> None:
        """Be connected with everybody soon."""
        with self._lock:
            for rank in self._exchange.links:
                self._exchange.want(rank)

    def wait_until_settled(self, deadline: float) -> list[int]:
        """Until everybody is connected or known to be gone; the ranks of which neither is true."""
        with self._lock:
            while missing := [
                rank
                for rank, link in self._exchange.links.items()
                if link.line is None and rank not in self._exchange.gone
            ]:
                left = deadline - time.monotonic()
                if self._aborted is not None or left <= 0:
                    return missing
                self._changed.wait(left)
            return []

    def lost(self) -> PeerLost | None:
        """Why a rank is gone, if one is that did not say goodbye."""
        with self._lock:
            return self._exchange.alarm

    def close(self, deadline: float) -> None:
        """Say goodbye where somebody listens, and give back what is left."""
        with self._lock:
            if self._closed:
                return
            given_up = self._aborted is not None
            if not given_up:
                self._exchange.say_goodbye()
                links = self._exchange.links.values()
                while any(link.line and not link.idle for link in links) and time.monotonic() < deadline:
                    self._serve(self._poller.poll(0.02))
            self._aborted = self._aborted or f"rank {self.rank} has closed its transport"
            self._closed = True
            self._choose_watching()
            while self._driven and time.monotonic() < deadline:
                self._bell.ring()
                self._changed.wait(0.05)
            lines = self._exchange.release()
            self._poller.close()
            self._changed.notify_all()
        for line, idle in lines:
            # Who was cut off without a word does not answer: nobody should wait for that before going on with others.
            if idle and not given_up:
                line.finish(deadline)
            else:
                line.close()

    # With the lock

    def _over(self, operation: Operation) -> bool:
        if self._aborted is not None:
            operation.fail(PeerLost(self._aborted))
        return self._aborted is not None

    def _unattend(self, operation: Operation) -> None:
        operation.unattended = True
        self._unattended += 1
        self._choose_watching()

    def _attend_no_more(self, operation: Operation) -> None:
        if operation.unattended:
            operation.unattended = False
            self._unattended -= 1
            self._choose_watching()

    def ended(self, operation: Operation) -> None:
        """An operation of this channel is done."""
        self._attend_no_more(operation)
        if self._driven:
            # It was not the one who drives that came this far, so the one who drives and the others have to look.
            self._bell.ring()
            self._changed.notify_all()

    def _serve(self, events: list[tuple[int, int]]) -> None:
        if self._aborted is None:
            if any(descriptor == self._bell.descriptor for descriptor, _ in events):
                self._bell.silence()
            self._exchange.serve(events)

    def _choose_watching(self) -> None:
        watched = self._unattended > 0 and not self._waiting and self._aborted is None
        if watched != self._watched:
            self._watched = watched
            (self._watcher.watch if watched else self._watcher.unwatch)(self)

    def _tell_gone(self, rank: int, error: PeerLost, alarming: bool) -> None:
        self._changed.notify_all()
        self._watcher.gone(self, rank, error, alarming)
