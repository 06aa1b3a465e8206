"""All of one rank's connections for one kind of messages, moved on by whoever waits for one of these.

Who waits does the work itself: no other thread has to be woken first, which is most of what a short message costs.
While nobody waits and something long is under way, the `IOThread` does it.
"""

from __future__ import annotations

import select
import threading
import time
from typing import TYPE_CHECKING

from minga.comm.tcp.connection import Connection
from minga.comm.tcp.frames import SHORT_BYTES, Kind
from minga.comm.tcp.mailbox import Mailbox, Operation
from minga.errors import PeerLost, PeerTimeout, PeerWrong
from minga.net.sockets import READ, WRITE, Socket, Waker

if TYPE_CHECKING:
    from minga.comm.tcp.io_thread import IOThread

__all__ = ["Endpoint"]

_GONE = select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP


class Endpoint:
    """One rank's side. All threads may use it."""

    def __init__(self, number: int, rank: int, size: int, io: IOThread, seconds: float) -> None:
        """`io` must not come back to the endpoint at once when it is called."""
        self.number = number
        self.rank = rank
        self._io = io
        self._seconds = seconds
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._poller = select.epoll()
        self._waker = Waker()
        self._poller.register(self._waker.descriptor, READ)
        self.descriptor = self._poller.fileno()
        self.mailbox = Mailbox(rank)
        self.connections = {other: Connection(rank, other, self.mailbox) for other in range(size) if other != rank}
        self._by_descriptor: dict[int, Connection] = {}
        self._wanted: set[int] = set()
        self.alarm: PeerLost | None = None
        """Why the first rank is gone that did not say goodbye."""
        self.over: str | None = None
        """Why nothing goes on here any more: it was given up, or closed."""
        self._unattended = 0
        """How many operations must go on also while nobody waits."""
        self._waiting = 0
        self._awaited: dict[Operation, float] = {}
        """What somebody waits for, and since when."""
        self._driven = False
        """Whether a thread waits in the poller, without the lock."""
        self._watched = False
        io.add(self)

    # What ranks' threads call

    def isend(self, view: memoryview, to: int, tag: int, *, expected: bool = False) -> Operation:
        operation = Operation(self, to, tag, view, sends=True, expected=expected)
        with self._lock:
            if not self._impossible(operation):
                self._want(to)
                self.connections[to].send(operation)
                self._settle(self.connections[to])
                if not operation.done:
                    self._count_unattended(operation)
        return operation

    def ireceive(self, view: memoryview, source: int | None, tag: int, *, expected: bool = False) -> Operation:
        """What a rank that is gone sent last can still be received."""
        operation = Operation(self, source, tag, view, sends=False, expected=expected)
        with self._lock:
            if self.over is not None:
                operation.end(PeerLost(self.over))
                return operation
            for peer in self.connections if source is None else (source,):
                self._want(peer)
            try:
                self.mailbox.post(operation)
            except PeerWrong as error:
                assert error.rank is not None
                self._lose(self.connections[error.rank], error, alarming=True)
                operation.end(error)
            self._reply()
            if not operation.done and self._impossible(operation):
                self.mailbox.cancel(operation)
            # A short message is sent whether anybody reads or not; a long one goes on only if somebody does.
            if not operation.done and len(view) > SHORT_BYTES:
                self._count_unattended(operation)
        return operation

    def cancel(self, operation: Operation) -> None:
        with self._lock:
            self.mailbox.cancel(operation)
            self._count_attended(operation)

    def wait(self, operation: Operation, patience: float) -> None:
        """Until the operation is done; meanwhile all others go on too."""
        began, seconds = time.monotonic(), self._seconds * patience
        with self._lock:
            self._waiting += 1
            self._choose_watching()
            self._awaited[operation] = began
            try:
                while not operation.done:
                    if self.over is not None:
                        raise PeerLost(self.over)
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

    def _drive(self, seconds: float) -> None:
        self._driven = True
        self._lock.release()
        try:
            events = self._poller.poll(seconds)
        finally:
            self._lock.acquire()
            self._driven = False
        self._serve(events)
        if self._waiting > 1 or self.over is not None:
            self._changed.notify_all()

    def _late(self, operation: Operation, seconds: float) -> PeerTimeout:
        if not operation.sends:
            self.mailbox.cancel(operation)
        absent = [rank for rank in self._not_connected() if operation.peer in (None, rank)]
        which = f" Not connected: rank {', '.join(map(str, absent))}." if absent else ""
        return PeerTimeout(
            f"rank {self.rank} waited {seconds:g} s to {operation}, in vain: slow, stopped, or not at the same "
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

    def want_all(self) -> None:
        """Be connected with everybody soon."""
        with self._lock:
            for rank in self.connections:
                self._want(rank)

    def wait_until_settled(self, deadline: float) -> list[int]:
        """Until everybody is connected or known to be gone; the ranks of which neither is true."""
        with self._lock:
            while missing := [rank for rank in self._not_connected() if self.connections[rank].lost is None]:
                left = deadline - time.monotonic()
                if self.over is not None or left <= 0:
                    return missing
                self._changed.wait(left)
            return []

    def abort(self, reason: str) -> None:
        """Every wait ends, now and later. Takes no lock, so that nothing holds it up; `wake_all` must follow."""
        if self.over is None:
            self.over = reason
        self._waker.wake()

    def wake_all(self) -> None:
        """Let those look who wait behind another one."""
        with self._lock:
            self._choose_watching()
            self._changed.notify_all()

    def close(self, deadline: float) -> None:
        """Say goodbye where somebody listens, and give back what is left."""
        with self._lock:
            connections = list(self.connections.values())
            given_up = self.over is not None
            if not given_up:
                for connection in connections:
                    if connection.socket is not None:
                        connection.say(Kind.GOODBYE)
                        self._settle(connection)
                while any(each.socket and not each.idle for each in connections) and time.monotonic() < deadline:
                    self._serve(self._poller.poll(0.02))
            self.over = self.over or f"rank {self.rank} has closed its transport"
            self._choose_watching()
            while self._driven and time.monotonic() < deadline:
                self._waker.wake()
                self._changed.wait(0.05)
            sockets = [(each.socket, each.idle) for each in connections if each.socket is not None]
            for connection in connections:
                connection.drop()
            self._by_descriptor.clear()
            self._poller.close()
            self._changed.notify_all()
        for socket, idle in sockets:
            # Who was cut off does not answer: nobody should wait for that before going on with others.
            if idle and not given_up:
                socket.finish(deadline)
            else:
                socket.close()

    # What the threads call that make connections

    def attach(self, rank: int, socket: Socket, first: bytes = b"") -> bool:
        """The connection to `rank` is there; `first` goes out before anything else. False: it is not wanted."""
        with self._lock:
            connection = self.connections[rank]
            if connection.socket is not None or connection.lost is not None or self.over is not None:
                return False
            if first:
                socket.send([memoryview(first)])  # an empty buffer has room for a greeting
            connection.socket = socket
            self._wanted.add(rank)
            self._by_descriptor[socket.descriptor] = connection
            connection.flush()
            self._settle(connection)
            self._changed.notify_all()
        self._io.attached(self, rank)
        return True

    def lose(self, rank: int, error: PeerLost, *, alarming: bool) -> None:
        """There will be no connection to `rank`, if there is none yet: one that is there speaks for itself."""
        with self._lock:
            connection = self.connections[rank]
            if connection.socket is None and self.over is None:
                self._lose(connection, error, alarming=alarming)

    def attend(self) -> None:
        """Go on with everything if nobody waits here."""
        with self._lock:
            self._choose_watching()
            if self._idle:
                self._serve(self._poller.poll(0))

    def look_at(self, rank: int) -> None:
        """The connection to `rank` seems to have ended: read what it sent last."""
        with self._lock:
            if self.connections[rank].socket is not None and self._idle:
                self._receive(self.connections[rank], to_the_end=True)

    def descriptor_of(self, rank: int) -> int | None:
        with self._lock:
            socket = self.connections[rank].socket
            return None if socket is None else socket.descriptor

    # With the lock

    @property
    def _idle(self) -> bool:
        """Whether nobody drives, and there is something to be driven."""
        return not self._driven and self.over is None

    def _not_connected(self) -> list[int]:
        return [rank for rank, connection in self.connections.items() if connection.socket is None]

    def _impossible(self, operation: Operation) -> bool:
        """Whether its peer is gone; the operation has failed then."""
        error: PeerLost | None = None
        if self.over is not None:
            error = PeerLost(self.over)
        elif operation.peer is not None:
            error = self.connections[operation.peer].lost
        elif self.alarm is not None:
            error = self.alarm
        elif self._alone:
            error = PeerLost(f"rank {self.rank} can't {operation}: all others have left")
        if error is not None:
            operation.end(error)
        return error is not None

    @property
    def _alone(self) -> bool:
        return all(connection.lost is not None for connection in self.connections.values())

    def _want(self, rank: int) -> None:
        """Be connected with `rank`, now or soon."""
        if rank not in self._wanted:
            self._wanted.add(rank)
            self._io.call(self, rank)

    def ended(self, operation: Operation) -> None:
        """An operation of this endpoint is done."""
        self._count_attended(operation)
        if self._driven:
            # It was not the one who drives that came this far, so the one who drives and the others have to look.
            self._waker.wake()
            self._changed.notify_all()

    def _count_unattended(self, operation: Operation) -> None:
        operation.unattended = True
        self._unattended += 1
        self._choose_watching()

    def _count_attended(self, operation: Operation) -> None:
        if operation.unattended:
            operation.unattended = False
            self._unattended -= 1
            self._choose_watching()

    def _choose_watching(self) -> None:
        watched = self._unattended > 0 and not self._waiting and self.over is None
        if watched != self._watched:
            self._watched = watched
            self._io.watch_endpoint(self, watched)

    def _serve(self, events: list[tuple[int, int]]) -> None:
        """Go on where the poller says that something can be done."""
        if self.over is not None:
            return
        for descriptor, event in events:
            connection = self._by_descriptor.get(descriptor)
            if descriptor == self._waker.descriptor:
                self._waker.clear()
            elif connection is not None:
                if event & WRITE:
                    connection.flush()
                if event & (READ | _GONE):
                    self._receive(connection)
                else:
                    self._settle(connection)

    def _receive(self, connection: Connection, *, to_the_end: bool = False) -> None:
        """Take in what has come; `to_the_end`: it seems to have ended, so until that is known for sure."""
        try:
            going_on = connection.read()
            while going_on and to_the_end and connection.socket is not None and not connection.left:
                before = connection.received
                going_on = connection.read()
                if connection.received == before:
                    break
        except PeerWrong as error:
            self._lose(connection, error, alarming=True)
        except OSError as error:
            self._end(connection, error)
        else:
            if not going_on:
                self._end(connection, None)
            else:
                self._settle(connection)
        self._reply()

    def _reply(self) -> None:
        """Send what the mailbox has to say."""
        while self.mailbox.replies:
            rank, kind, tag, length = self.mailbox.replies.pop(0)
            if self.connections[rank].lost is None:
                self.connections[rank].say(kind, tag, length)
                self._settle(self.connections[rank])

    def _settle(self, connection: Connection) -> None:
        """After something was done with a connection: is it broken, what is to be watched for?"""
        socket, error = connection.socket, connection.send_error
        if socket is not None and error is not None:
            connection.send_error = None
            self._receive(connection, to_the_end=True)  # what the other side sent last, such as a goodbye, may be here
            if connection.socket is not None:
                self._end(connection, error)
        elif socket is not None and (wanted := connection.wanted) != connection.events:
            if connection.events:
                self._poller.modify(socket.descriptor, wanted)
            else:
                self._poller.register(socket.descriptor, wanted)
            connection.events = wanted

    def _end(self, connection: Connection, error: OSError | None) -> None:
        if connection.left:
            lost = PeerLost(f"rank {self.rank}: rank {connection.rank} has left")
        else:
            why = "it was closed at the other end" if error is None else error.strerror or str(error)
            what = f"the connection to rank {connection.rank} is gone ({why})"
            lost = PeerLost(f"rank {self.rank}: {what}", rank=connection.rank)
        self._lose(connection, lost, alarming=not connection.left)

    def _lose(self, connection: Connection, error: PeerLost, *, alarming: bool) -> None:
        """`alarming`: who waits for anybody fails too; not so when a rank leaves because it is done."""
        if connection.lost is not None:
            return
        connection.lost = error
        if alarming and self.alarm is None:
            self.alarm = error
        operations, socket = list(connection.operations()), connection.socket
        connection.drop()
        if socket is not None:
            del self._by_descriptor[socket.descriptor]
            socket.close()  # which also takes it from the poller
        for operation in operations:
            operation.end(error)
        self.mailbox.lose(connection.rank, error, alarming=alarming or self._alone)
        self._changed.notify_all()
        self._io.gone(self, connection.rank, error, alarming)
