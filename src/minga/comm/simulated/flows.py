"""Messages on their way: each takes its share of every cable that it goes through.

All messages that use a cable at a time share it as TCP connections do: nobody gets more than an equal part of the
cable that is fullest on its way, and what somebody can't use is there for the others (max-min fairness). Messages
from one rank to another go one behind the other.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable

from minga.comm.simulated.engine import Engine
from minga.comm.simulated.wires import Wires

__all__ = ["LONGEST_PAUSE", "UNLIMITED", "Connection", "Flows", "Parcel"]


# Bytes a second that are as good as no limit, yet a number that can be computed with.
UNLIMITED = 1e15
# Pauses beyond this many timeouts change nothing any more.
LONGEST_PAUSE = 60.0


class _Pipe:
    """One direction of a cable."""

    __slots__ = ("capacity", "open", "parcels", "spare")

    def __init__(self, capacity: float) -> None:
        self.capacity = min(capacity, UNLIMITED)
        self.parcels: dict[Parcel, None] = {}  # in the order in which they came
        self.spare = 0.0
        """While shares are being found: what is left, ..."""
        self.open = 0
        """... and for how many."""


class Connection:
    """From one rank to another: parcels go one behind the other, and TCP's window opens."""

    __slots__ = ("busy", "delay", "pipes", "queue", "round_trip", "source", "target", "used", "window")

    def __init__(self, source: int, target: int, pipes: tuple[_Pipe, ...]) -> None:
        self.source = source
        self.target = target
        self.pipes = pipes
        self.delay = 0.0
        self.round_trip = 0.0
        self.window = 0.0
        """Bytes that may be on their way without an answer; 0: it has not sent anything yet."""
        self.queue: deque[Parcel] = deque()
        self.busy = False
        self.used = -math.inf


class Parcel:
    """A message on its way."""

    __slots__ = ("arrived", "connection", "lag", "left", "missing", "rate", "since", "version")

    def __init__(
        self, nbytes: int, connection: Connection, left: Callable[[], None], arrived: Callable[[], None]
    ) -> None:
        """`left`: called when the last byte is on its way, `arrived`: when it is there."""
        self.missing = float(nbytes)
        self.connection = connection
        self.left = left
        self.arrived = arrived
        self.rate = 0.0
        self.since = 0.0
        self.lag = 0.0
        """Time in which it waited for answers, as TCP's window was small."""
        self.version = 0


class Flows:
    """All messages on their way in a network."""

    def __init__(self, engine: Engine, wires: Wires) -> None:
        self._engine = engine
        self._wires = wires
        self._up = [_Pipe(cable.up) for cable in wires.cables]
        self._down = [_Pipe(cable.down) for cable in wires.cables]
        self._between = {(0, 1): _Pipe(wires.between.up), (1, 0): _Pipe(wires.between.down)}
        self._delays: dict[int, float] = {}
        """One-way delays of hosts that have changed on the way."""
        self._connections: list[Connection] = []
        self._dirty: dict[_Pipe, None] = {}

    def connect(self, source: int, target: int) -> Connection:
        """From one host to another."""
        sites = self._wires.sites
        pipes: tuple[_Pipe, ...] = ()
        if source != target:
            between = [self._between[sites[source], sites[target]]] if sites and sites[source] != sites[target] else []
            used = [self._up[source], *between, self._down[target]]
            # What is never narrow needs no accounts; what may change on the way does.
            pipes = tuple(pipe for pipe in used if pipe.capacity < UNLIMITED or self._wires.changes)
        connection = Connection(source, target, pipes)
        self._connections.append(connection)
        self._find_delays(connection)
        return connection

    def _find_delays(self, connection: Connection) -> None:
        source, target = connection.source, connection.target
        there, back = self._delay(source, target), self._delay(target, source)
        connection.delay, connection.round_trip = there, there + back

    def _delay(self, source: int, target: int) -> float:
        wires, changed = self._wires, self._delays.get(source)
        if source == target or changed is None:
            return wires.delay(source, target)
        # Only the host's own cable is another one; what lies between sites is as it was.
        beyond = 0.0 if wires.delays else wires.delay(source, target) - wires.cables[source].delay
        return changed + beyond

    def change(self, host: int, *, up: float | None, down: float | None, delay: float | None) -> None:
        """From now on a host's cable is another one."""
        changed = [(self._up[host], up), (self._down[host], down)]
        for pipe, capacity in changed:
            if capacity is not None:
                pipe.capacity = min(capacity, UNLIMITED)
                self._mark((pipe,))
        if delay is not None:
            self._delays[host] = delay
            for connection in self._connections:
                if host in (connection.source, connection.target):
                    self._find_delays(connection)

    def send(self, parcel: Parcel) -> None:
        """Now, or when what was sent before on this connection has left."""
        connection = parcel.connection
        if connection.busy:
            connection.queue.append(parcel)
        else:
            self._begin(parcel)

    def _begin(self, parcel: Parcel) -> None:
        connection = parcel.connection
        connection.busy = True
        pipes = connection.pipes
        if not pipes:
            self._leave(parcel)
            return
        if connection.round_trip:
            parcel.lag = self._open_window(connection, parcel.missing)
        parcel.since = self._engine.now
        alone = True
        for pipe in pipes:
            alone = alone and not pipe.parcels
            pipe.parcels[parcel] = None
        if alone:
            parcel.rate = min(pipe.capacity for pipe in pipes)
            self._expect(parcel)
        else:
            self._mark(pipes)

    def _open_window(self, connection: Connection, nbytes: float) -> float:
        """How long a message waits for answers while the window is small; it is wider afterwards."""
        carrier, round_trip = self._wires.carrier, connection.round_trip
        least = float(carrier.initial_window)
        pauses = min((self._engine.now - connection.used) / (carrier.pause_seconds + round_trip), LONGEST_PAUSE)
        before = max(least, connection.window * 0.5 ** int(pauses))
        connection.window = before
        full = round_trip * min((pipe.capacity for pipe in connection.pipes), default=math.inf)
        sent = lag = 0.0
        while connection.window < full and sent + connection.window < nbytes:
            lag += round_trip * (1 - connection.window / full)
            sent += connection.window
            connection.window *= 2
        # Every byte that is answered makes it wider by one, as long as half of it is in use.
        connection.window = max(connection.window, min(before + nbytes, 2 * nbytes))
        return lag

    def _expect(self, parcel: Parcel) -> None:
        parcel.version += 1
        if parcel.rate > 0:
            engine = self._engine
            engine.at(engine.now + parcel.missing / parcel.rate, self._finish, parcel, parcel.version)

    def _finish(self, parcel: Parcel, version: int) -> None:
        if version != parcel.version:  # its share has changed since
            return
        pipes = parcel.connection.pipes
        shared = False
        for pipe in pipes:
            del pipe.parcels[parcel]
            shared = shared or bool(pipe.parcels)
        if shared:
            self._mark(pipes)
        if parcel.lag:
            self._engine.at(self._engine.now + parcel.lag, self._leave, parcel)
        else:
            self._leave(parcel)

    def _leave(self, parcel: Parcel) -> None:
        connection, engine = parcel.connection, self._engine
        connection.used = engine.now
        if connection.queue:
            self._begin(connection.queue.popleft())
        else:
            connection.busy = False
        if connection.delay:
            engine.at(engine.now + connection.delay, parcel.arrived)
            parcel.left()
        else:
            parcel.left()
            parcel.arrived()

    def _mark(self, pipes: Iterable[_Pipe]) -> None:
        """The shares of who uses these must be found anew, once all that happens now has happened."""
        if not self._dirty:
            self._engine.at(self._engine.now, self._settle)
        self._dirty.update(dict.fromkeys(pipes))

    def _settle(self) -> None:
        now = self._engine.now
        pipes, parcels = self._concerned()
        self._dirty.clear()
        for parcel in parcels:
            parcel.missing = max(0.0, parcel.missing - parcel.rate * (now - parcel.since))
            parcel.since = now
        for pipe in pipes:
            pipe.spare, pipe.open = pipe.capacity, len(pipe.parcels)
        while parcels:
            pipes = [pipe for pipe in pipes if pipe.open]
            # Written out: `min` with a key takes twice as long, and this is where large simulations spend their time.
            narrowest, share = pipes[0], math.inf
            for pipe in pipes:
                if pipe.spare / pipe.open < share:
                    narrowest, share = pipe, pipe.spare / pipe.open
            rate = max(0.0, share)
            for parcel in [each for each in narrowest.parcels if each in parcels]:
                del parcels[parcel]
                for pipe in parcel.connection.pipes:
                    pipe.open -= 1
                    pipe.spare -= rate
                if rate != parcel.rate or not parcel.version:
                    parcel.rate = rate
                    self._expect(parcel)

    def _concerned(self) -> tuple[list[_Pipe], dict[Parcel, None]]:
        """Everything whose share depends on the cables that have changed."""
        pipes, parcels = dict(self._dirty), dict[Parcel, None]()
        waiting = list(pipes)
        while waiting:
            for parcel in waiting.pop().parcels:
                if parcel not in parcels:
                    parcels[parcel] = None
                    for pipe in parcel.connection.pipes:
                        if pipe not in pipes:
                            pipes[pipe] = None
                            waiting.append(pipe)
        return list(pipes), parcels
