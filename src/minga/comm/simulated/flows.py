"""Messages on their way: each takes its share of every cable that it goes through.

All messages that use a cable at a time share it as TCP connections do: nobody gets more than an equal part of the
cable that is fullest on its way, and what somebody can't use is there for the others (max-min fairness). Messages
from one rank to another go one behind the other.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from minga.comm.simulated.engine import Engine
from minga.comm.simulated.wires import Wires

__all__ = ["LONGEST_PAUSE", "UNLIMITED", "Flow", "Flows", "Transfer"]


# Bytes a second that are as good as no limit, yet a number that can be computed with.
UNLIMITED = 1e15
# Pauses beyond this many timeouts change nothing any more.
LONGEST_PAUSE = 60.0


@dataclass(eq=False, slots=True)
class _Pipe:
    """One direction of a cable."""

    capacity: float
    transfers: dict[Transfer, None] = field(default_factory=dict)
    """In the order in which they came."""
    spare: float = 0.0
    """While shares are being found: what is left, ..."""
    open: int = 0
    """... and for how many."""

    def __post_init__(self) -> None:
        self.capacity = min(self.capacity, UNLIMITED)


@dataclass(eq=False, slots=True)
class Flow:
    """From one rank to another: transfers go one behind the other, and TCP's window opens."""

    source: int
    target: int
    pipes: tuple[_Pipe, ...]
    delay: float = 0.0
    round_trip: float = 0.0
    window: float = 0.0
    """Bytes that may be on their way without an answer; 0: it has not sent anything yet."""
    queue: deque[Transfer] = field(default_factory=deque)
    busy: bool = False
    used: float = -math.inf


@dataclass(eq=False, slots=True)
class Transfer:
    """A message on its way."""

    missing: float
    """Bytes that have not left."""
    flow: Flow
    left: Callable[[], None]
    """Called when the last byte is on its way."""
    arrived: Callable[[], None]
    """Called when it is there."""
    rate: float = 0.0
    since: float = 0.0
    lag: float = 0.0
    """Time in which it waited for answers, as TCP's window was small."""
    version: int = 0


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
        self._flows: list[Flow] = []
        self._dirty: dict[_Pipe, None] = {}

    def connect(self, source: int, target: int) -> Flow:
        """From one host to another."""
        sites = self._wires.sites
        pipes: tuple[_Pipe, ...] = ()
        if source != target:
            between = [self._between[sites[source], sites[target]]] if sites and sites[source] != sites[target] else []
            used = [self._up[source], *between, self._down[target]]
            # What is never narrow needs no accounts; what may change on the way does.
            pipes = tuple(pipe for pipe in used if pipe.capacity < UNLIMITED or self._wires.changes)
        flow = Flow(source, target, pipes)
        self._flows.append(flow)
        self._find_delays(flow)
        return flow

    def _find_delays(self, flow: Flow) -> None:
        there, back = self._delay(flow.source, flow.target), self._delay(flow.target, flow.source)
        flow.delay, flow.round_trip = there, there + back

    def _delay(self, source: int, target: int) -> float:
        wires, changed = self._wires, self._delays.get(source)
        if source == target or changed is None:
            return wires.delay(source, target)
        # Only the host's own cable is another one; what lies between sites is as it was.
        beyond = 0.0 if wires.delays else wires.delay(source, target) - wires.cables[source].delay
        return changed + beyond

    def change(self, host: int, *, up: float | None, down: float | None, delay: float | None) -> None:
        """From now on a host's cable is another one."""
        for pipe, capacity in ((self._up[host], up), (self._down[host], down)):
            if capacity is not None:
                pipe.capacity = min(capacity, UNLIMITED)
                self._mark((pipe,))
        if delay is not None:
            self._delays[host] = delay
            for flow in self._flows:
                if host in (flow.source, flow.target):
                    self._find_delays(flow)

    def send(self, transfer: Transfer) -> None:
        """Now, or when what was sent before on this flow has left."""
        flow = transfer.flow
        if flow.busy:
            flow.queue.append(transfer)
        else:
            self._begin(transfer)

    def _begin(self, transfer: Transfer) -> None:
        flow = transfer.flow
        flow.busy = True
        pipes = flow.pipes
        if not pipes:
            self._leave(transfer)
            return
        if flow.round_trip:
            transfer.lag = self._open_window(flow, transfer.missing)
        transfer.since = self._engine.now
        alone = True
        for pipe in pipes:
            alone = alone and not pipe.transfers
            pipe.transfers[transfer] = None
        if alone:
            transfer.rate = min(pipe.capacity for pipe in pipes)
            self._expect(transfer)
        else:
            self._mark(pipes)

    def _open_window(self, flow: Flow, nbytes: float) -> float:
        """How long a message waits for answers while the window is small; it is wider afterwards."""
        carrier, round_trip = self._wires.carrier, flow.round_trip
        least = float(carrier.initial_window)
        pauses = min((self._engine.now - flow.used) / (carrier.pause_seconds + round_trip), LONGEST_PAUSE)
        before = max(least, flow.window * 0.5 ** int(pauses))
        flow.window = before
        full = round_trip * min((pipe.capacity for pipe in flow.pipes), default=math.inf)
        sent = lag = 0.0
        while flow.window < full and sent + flow.window < nbytes:
            lag += round_trip * (1 - flow.window / full)
            sent += flow.window
            flow.window *= 2
        # Every byte that is answered makes it wider by one, as long as half of it is in use.
        flow.window = max(flow.window, min(before + nbytes, 2 * nbytes))
        return lag

    def _expect(self, transfer: Transfer) -> None:
        transfer.version += 1
        if transfer.rate > 0:
            engine = self._engine
            engine.at(engine.now + transfer.missing / transfer.rate, self._finish, transfer, transfer.version)

    def _finish(self, transfer: Transfer, version: int) -> None:
        if version != transfer.version:  # its share has changed since
            return
        pipes = transfer.flow.pipes
        shared = False
        for pipe in pipes:
            del pipe.transfers[transfer]
            shared = shared or bool(pipe.transfers)
        if shared:
            self._mark(pipes)
        if transfer.lag:
            self._engine.at(self._engine.now + transfer.lag, self._leave, transfer)
        else:
            self._leave(transfer)

    def _leave(self, transfer: Transfer) -> None:
        flow, engine = transfer.flow, self._engine
        flow.used = engine.now
        if flow.queue:
            self._begin(flow.queue.popleft())
        else:
            flow.busy = False
        if flow.delay:
            engine.at(engine.now + flow.delay, transfer.arrived)
            transfer.left()
        else:
            transfer.left()
            transfer.arrived()

    def _mark(self, pipes: Iterable[_Pipe]) -> None:
        """The shares of who uses these must be found again, once all that happens now has happened."""
        if not self._dirty:
            self._engine.at(self._engine.now, self._settle)
        self._dirty.update(dict.fromkeys(pipes))

    def _settle(self) -> None:
        now = self._engine.now
        pipes, transfers = self._concerned()
        self._dirty.clear()
        for transfer in transfers:
            transfer.missing = max(0.0, transfer.missing - transfer.rate * (now - transfer.since))
            transfer.since = now
        for pipe in pipes:
            pipe.spare, pipe.open = pipe.capacity, len(pipe.transfers)
        while transfers:
            pipes = [pipe for pipe in pipes if pipe.open]
            # Written out: `min` with a key takes twice as long, and this is where large simulations spend their time.
            narrowest, share = pipes[0], math.inf
            for pipe in pipes:
                if pipe.spare / pipe.open < share:
                    narrowest, share = pipe, pipe.spare / pipe.open
            rate = max(0.0, share)
            for transfer in [each for each in narrowest.transfers if each in transfers]:
                del transfers[transfer]
                for pipe in transfer.flow.pipes:
                    pipe.open -= 1
                    pipe.spare -= rate
                if rate != transfer.rate or not transfer.version:
                    transfer.rate = rate
                    self._expect(transfer)

    def _concerned(self) -> tuple[list[_Pipe], dict[Transfer, None]]:
        """Everything whose share depends on the cables that have changed."""
        pipes, transfers = dict(self._dirty), dict[Transfer, None]()
        waiting = list(pipes)
        while waiting:
            for transfer in waiting.pop().transfers:
                if transfer not in transfers:
                    transfers[transfer] = None
                    for pipe in transfer.flow.pipes:
                        if pipe not in pipes:
                            pipes[pipe] = None
                            waiting.append(pipe)
        return list(pipes), transfers
