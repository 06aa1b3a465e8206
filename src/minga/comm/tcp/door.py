"""Where others connect to a process for data: one listener for its lifetime, whatever generations come and go.

    with DataListener("127.0.0.1") as door:
        print(door.port)  # tell it to the others

Nobody gets in who does not know the secret of the generation that it names. A quicker peer may come for a generation
that this process has not heard of yet: it waits in front of the door. All greetings go on side by side in one thread,
each step only when it can be done at once, so a visitor that says nothing holds up nobody.
"""

from __future__ import annotations

import contextlib
import logging
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from minga.base.rate_limit import RateLimit
from minga.comm.tcp.bell import Waker
from minga.comm.tcp.greeting import Dropped, Hello, Secret, hear, prove, refuse
from minga.comm.tcp.line import READ, Line, Steps, Tls
from minga.errors import PortBusy

__all__ = ["DataListener"]

_log = logging.getLogger("minga.comm.tcp")

# Whoever knocks without end is not to fill the log.
_MOST_LINES_A_SECOND = 20
_GREETING_SECONDS = 2.0
_UNFINISHED = 64
# Those who have come too early may wait so long, and so many of them; a caller that is dropped then calls again.
_EARLY_SECONDS = 30.0
_EARLY = 256
# A visitor that waits for its generation: nothing is wanted from it, only that it stays.
_PARKED = 0

Accept = Callable[[Hello, Line, bytes], None]
"""Takes over a line that has been proved; the bytes are to be sent first. Raises `Dropped` if it is not wanted."""


@dataclass
class _Visitor:
    line: Line
    whence: str
    steps: Steps[None]
    deadline: float
    wanted: int = READ
    since: float = field(default_factory=time.monotonic)


class DataListener:
    """Listens at once, at a port that the kernel chooses, and greets in a thread of its own."""

    def __init__(self, address: str = "127.0.0.1", tls: Tls | None = None) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            self._listener = socket.create_server((address, 0), family=family, backlog=256)
        except OSError as error:
            raise PortBusy(f"can't listen on {address}: {error.strerror}. Is it an address of this machine?") from None
        self._listener.setblocking(False)
        self.address = address
        self.port = int(self._listener.getsockname()[1])
        self.tls = tls
        self._lock = threading.Lock()
        self._expected: dict[tuple[int, int], tuple[Secret, Accept]] = {}
        self._over: set[tuple[int, int]] = set()
        self._latest = -1
        self._visitors: dict[int, _Visitor] = {}
        self._lines = RateLimit(_MOST_LINES_A_SECOND, seconds=1.0)
        self._closed = False
        self._bell = Waker()
        self._poller = select.epoll()
        self._poller.register(self._listener.fileno(), READ)
        self._poller.register(self._bell.descriptor, READ)
        self._thread = threading.Thread(target=self._run, name=f"minga-door-{self.port}", daemon=True)
        self._thread.start()

    def __enter__(self) -> DataListener:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def expect(self, generation: int, rank: int, secret: Secret, accept: Accept) -> None:
        """Let those in who want `rank` of this generation; `accept` is called in the door's thread."""
        with self._lock:
            if generation > self._latest:
                self._latest = generation
                self._over.clear()
            self._expected[generation, rank] = (secret, accept)
        self._bell.ring()

    def forget(self, generation: int, rank: int) -> None:
        """Let nobody in for this rank any more."""
        with self._lock:
            if self._expected.pop((generation, rank), None) is not None:
                self._over.add((generation, rank))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._bell.ring()
            self._thread.join(timeout=5)

    def _run(self) -> None:
        try:
            while not self._closed:
                nearest = min((visitor.deadline for visitor in self._visitors.values()), default=None)
                timeout = -1 if nearest is None else max(0.0, nearest - time.monotonic())
                for descriptor, events in self._poller.poll(timeout):
                    self._serve(descriptor, events)
                self._drop_the_late()
        finally:
            for visitor in self._visitors.values():
                visitor.line.close()
            self._listener.close()
            self._poller.close()

    def _serve(self, descriptor: int, events: int) -> None:
        if descriptor == self._bell.descriptor:
            self._bell.silence()
            for visitor in [each for each in self._visitors.values() if each.wanted == _PARKED]:
                self._go_on(visitor)
        elif descriptor == self._listener.fileno():
            self._let_come()
        elif (visitor := self._visitors.get(descriptor)) is not None:  # type: ignore[assignment]
            if visitor.wanted == _PARKED:
                self._drop(visitor, Dropped("it came early and did not wait"))
            else:
                self._go_on(visitor)

    def _let_come(self) -> None:
        try:
            connection, whence = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:  # no more descriptors: whoever has waited longest goes
            _log.warning("could not let anybody in: %s", error)
            self._make_room(lambda visitor: True, 0)
            time.sleep(0.01)
            return
        line = Line(connection)
        deadline = time.monotonic() + _GREETING_SECONDS
        visitor = _Visitor(line, f"{whence[0]}:{whence[1]}", self._greeting(line), deadline)
        # The oldest goes, not the newest: an honest greeting takes milliseconds, so the oldest is the least likely one.
        self._make_room(lambda each: each.wanted != _PARKED, _UNFINISHED - 1)
        self._visitors[line.descriptor] = visitor
        self._poller.register(line.descriptor, READ)
        self._go_on(visitor)

    def _make_room(self, among: Callable[[_Visitor], bool], most: int) -> None:
        those = sorted(filter(among, self._visitors.values()), key=lambda visitor: visitor.since)
        for visitor in those[: max(0, len(those) - most)]:
            self._drop(visitor, Dropped("too many come at once"))

    def _greeting(self, line: Line) -> Steps[None]:
        if self.tls is not None:
            yield from line.encrypt(self.tls, server_name=None)
        hello = yield from hear(line)
        while (place := self._place(hello)) is None:
            yield _PARKED
        secret, accept = place
        rest = yield from prove(line, hello, secret)
        self._poller.unregister(line.descriptor)
        accept(hello, line, rest)

    def _place(self, hello: Hello) -> tuple[Secret, Accept] | None:
        key = (hello.generation, hello.called)
        with self._lock:
            if hello.generation < self._latest or key in self._over:
                raise Dropped.stale(f"generation {hello.generation} is over, {self._latest} is the latest")
            return self._expected.get(key)

    def _go_on(self, visitor: _Visitor) -> None:
        try:
            wanted = next(visitor.steps)
        except StopIteration:
            del self._visitors[visitor.line.descriptor]
            return
        except Exception as error:  # whatever one visitor does, the door stays open for the others
            self._drop(visitor, error)
            return
        if wanted != visitor.wanted:
            now = time.monotonic()
            if wanted == _PARKED:
                self._make_room(lambda each: each.wanted == _PARKED, _EARLY - 1)
                visitor.deadline = now + _EARLY_SECONDS
            elif visitor.wanted == _PARKED:
                visitor.deadline = now + _GREETING_SECONDS
            visitor.wanted = wanted
            self._poller.modify(visitor.line.descriptor, wanted or select.EPOLLRDHUP)

    def _drop_the_late(self) -> None:
        now = time.monotonic()
        for visitor in [each for each in self._visitors.values() if each.deadline <= now]:
            early = visitor.wanted == _PARKED
            self._drop(visitor, Dropped("its generation did not come" if early else "its greeting took too long"))

    def _drop(self, visitor: _Visitor, why: Exception) -> None:
        if self._lines.take():
            more = f" (and {self._lines.refused} others meanwhile)" if self._lines.refused else ""
            _log.warning("dropped the connection from %s: %s%s", visitor.whence, why, more)
        if isinstance(why, Dropped) and why.code is not None:
            with contextlib.suppress(OSError):
                refuse(visitor.line, why.code)
        del self._visitors[visitor.line.descriptor]
        visitor.line.close()
