"""Everything between one rank and the others over one set of connections: links, who is gone, what waits for whom.

Not for several threads at a time; `Channel` sees to that. Nothing here blocks.
"""

from __future__ import annotations

import select
from collections import Counter
from collections.abc import Callable

from minga.comm.tcp.frames import ANNOUNCE, CREDIT, EAGER, GOODBYE, PERMIT, WINDOW_BYTES, cost
from minga.comm.tcp.line import READ, WRITE, Line
from minga.comm.tcp.link import Link
from minga.comm.tcp.mailbox import Landing, Mailbox, Nonsense, OfAnotherLength
from minga.comm.tcp.operation import Operation
from minga.errors import PeerLost, PeerWrong, WrongLength

__all__ = ["Exchange"]

_GONE = select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP


class Exchange:
    """One rank's side."""

    def __init__(
        self,
        rank: int,
        size: int,
        poller: select.epoll,
        *,
        asked: bool,
        wanted: Callable[[int], None],
        gone: Callable[[int, PeerLost, bool], None],
    ) -> None:
        """`wanted(rank)`: somebody has something to say to it, and it is not connected. `gone(rank, why, alarming)`."""
        self.rank = rank
        self.gone: dict[int, PeerLost] = {}
        self.links = {other: Link(other, self, asked=asked) for other in range(size) if other != rank}
        self._poller = poller
        self._mailbox = Mailbox(self._permit, self._taken, asked=asked)
        self._tell_wanted = wanted
        self._tell_gone = gone
        self._wanted: set[int] = set()
        self._by_descriptor: dict[int, Link] = {}
        self.alarm: PeerLost | None = None
        """Why the first rank is gone that did not say goodbye."""
        self._credit: Counter[int] = Counter()

    def send(self, operation: Operation) -> None:
        assert operation.peer is not None
        if self._impossible(operation):
            return
        self.want(operation.peer)
        link = self.links[operation.peer]
        link.send(operation)
        self._settle(link)

    def post(self, operation: Operation) -> None:
        """A receive. What a rank that is gone said last can still be received."""
        source = operation.peer
        for peer in self.links if source is None else (source,):
            self.want(peer)
        try:
            self._mailbox.post(operation)
        except Nonsense as error:
            self._distrust(self.links[error.source], error)
            operation.fail(self.gone[error.source])
        for peer in self.links if source is None else (source,):
            self._resume(self.links[peer])
        if not operation.done and self._impossible(operation):
            self._mailbox.cancel(operation)

    def cancel(self, operation: Operation) -> None:
        self._mailbox.cancel(operation)

    def want(self, rank: int) -> None:
        """Be connected with `rank`, now or soon."""
        if rank not in self._wanted:
            self._wanted.add(rank)
            self._tell_wanted(rank)

    def attach(self, rank: int, line: Line, first: bytes) -> bool:
        """The connection to `rank` is there; `first` goes out before anything else. False: it has one already."""
        link = self.links[rank]
        if link.line is not None or rank in self.gone:
            return False
        if first:
            line.send([memoryview(first)])  # an empty buffer has room for a greeting
        link.line = line
        self._wanted.add(rank)
        self._by_descriptor[line.descriptor] = link
        link.flush()
        self._settle(link)
        return True

    def lose(self, rank: int, error: PeerLost, *, alarming: bool) -> None:
        """There will be no connection to `rank`, if there is none yet: one that is there speaks for itself."""
        if self.links[rank].line is None:
            self._part(self.links[rank], error, alarming=alarming)

    def serve(self, events: list[tuple[int, int]]) -> None:
        """Go on where the poller says that something can be done."""
        for descriptor, event in events:
            link = self._by_descriptor.get(descriptor)
            if link is None:
                continue
            if event & WRITE:
                link.flush()
            if event & (READ | _GONE):
                self.receive(link)
            else:
                self._settle(link)

    def receive(self, link: Link, *, to_the_end: bool = False) -> None:
        """Take in what a link has; `to_the_end`: its line seems to have ended, so until that is known for sure."""
        try:
            going_on = link.read()
            while going_on and to_the_end and link.wanted & READ and not link.left:
                before = link.progress
                going_on = link.read()
                if link.progress == before:
                    break
        except Nonsense as error:
            self._distrust(link, error)
        except OSError as error:
            self._end(link, error)
        else:
            if going_on:
                self._settle(link)
            else:
                self._end(link, None)

    def say_goodbye(self) -> None:
        for link in self.links.values():
            if link.line is not None:
                link.say(GOODBYE)
                self._settle(link)

    def release(self) -> list[tuple[Line, bool]]:
        """All lines, and whether everything was sent over them; whoever takes them closes them."""
        lines = [(link.line, link.idle) for link in self.links.values() if link.line is not None]
        for link in self.links.values():
            link.drop()
        self._by_descriptor.clear()
        return lines

    def _impossible(self, operation: Operation) -> bool:
        """Whether its peer is gone; the operation has failed then."""
        error: PeerLost | None = None
        if operation.peer is not None:
            error = self.gone.get(operation.peer)
        elif self.alarm is not None:
            error = self.alarm
        elif len(self.gone) == len(self.links):
            error = PeerLost(f"rank {self.rank} can't {operation.whom}: all others have left")
        if error is not None:
            operation.fail(error)
        return error is not None

    def _resume(self, link: Link) -> None:
        try:
            link.resume()
        except Nonsense as error:
            self._distrust(link, error)
        else:
            self._settle(link)

    def _settle(self, link: Link) -> None:
        """After something was done with a link: is it broken, what is to be watched for?"""
        if link.ailment is not None and link.line is not None:
            ailment, link.ailment = link.ailment, None
            self.receive(link, to_the_end=True)  # its last words, such as a goodbye, may be here
            if link.line is not None:
                self._end(link, ailment)
        else:
            self._watch(link)

    def _watch(self, link: Link) -> None:
        wanted = link.wanted
        if link.line is not None and wanted != link.events:
            if not link.events:
                self._poller.register(link.line.descriptor, wanted)
            elif not wanted:
                self._poller.unregister(link.line.descriptor)
            else:
                self._poller.modify(link.line.descriptor, wanted)
            link.events = wanted

    def _end(self, link: Link, error: OSError | None) -> None:
        if link.left:
            self._part(link, PeerLost(f"rank {self.rank}: rank {link.rank} has left"), alarming=False)
        else:
            why = "it was closed at the other end" if error is None else error.strerror or str(error)
            self._break(link, f"the connection to rank {link.rank} is gone ({why})")

    def _break(self, link: Link, what: str) -> None:
        self._part(link, PeerLost(f"rank {self.rank}: {what}", rank=link.rank), alarming=True)

    def _distrust(self, link: Link, nonsense: Nonsense) -> None:
        kind = WrongLength if isinstance(nonsense, OfAnotherLength) else PeerWrong
        self._part(link, kind(f"rank {self.rank}: {nonsense}", rank=link.rank), alarming=True)

    def _part(self, link: Link, error: PeerLost, *, alarming: bool) -> None:
        """`alarming`: who waits for anybody is told too; not so when a rank leaves because it is done."""
        if link.rank in self.gone:
            return
        self.gone[link.rank] = error
        if alarming and self.alarm is None:
            self.alarm = error
        operations, line = list(link.operations()), link.line
        link.drop()
        if line is not None:
            del self._by_descriptor[line.descriptor]
            line.close()  # which also takes it from the poller
        for operation in operations:
            operation.fail(error)
        self._mailbox.lose(link.rank, error, alarming=alarming or len(self.gone) == len(self.links))
        self._tell_gone(link.rank, error, alarming)

    # What the mailbox answers, and what a link hears

    def _permit(self, source: int, tag: int) -> None:
        self._say(source, PERMIT, tag, 0)

    def _taken(self, source: int, count: int) -> None:
        self._credit[source] += cost(count)
        if self._credit[source] >= WINDOW_BYTES // 2:
            self._say(source, CREDIT, 0, self._credit[source])
            self._credit[source] = 0

    def _say(self, source: int, kind: int, tag: int, length: int) -> None:
        if source not in self.gone:
            self.links[source].say(kind, tag, length)
            self._watch(self.links[source])

    def place(self, link: Link, kind: int, announced: bool, tag: int, length: int) -> Landing | None:
        if kind == EAGER:
            return self._mailbox.eager(link.rank, tag, length)
        return self._mailbox.message(link.rank, tag, length, announced=announced)

    def landed(self, link: Link, landing: Landing, *, eager: bool) -> None:
        self._mailbox.landed(landing, link.rank, eager=eager)

    def word(self, link: Link, kind: int, tag: int, length: int) -> None:
        if kind == PERMIT:
            link.permitted(tag)
        elif kind == CREDIT:
            link.credited(length)
        elif kind == ANNOUNCE:
            self._mailbox.announced(link.rank, tag, length)
        else:
            raise Nonsense(link.rank, f"sent a frame of kind {kind}, which nobody knows")
