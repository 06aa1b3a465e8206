"""How long a ring takes, without going through its messages one by one.

A ring of n ranks is 2 n (n - 1) messages: two million for a thousand ranks. Where every rank has a host and a cable of
its own, the hops of all ranks can be computed side by side, by the rule that a message goes when its sender has got the
one before and the last one has left. `tests/comm/test_long_ring.py` holds it against the messages themselves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from minga.comm.collectives.ring import AHEAD, SEGMENT_BYTES
from minga.comm.simulated.flows import LONGEST_PAUSE, UNLIMITED
from minga.comm.transport import Sent

if TYPE_CHECKING:
    from minga.comm.simulated.engine import RankTask
    from minga.comm.simulated.world import SimulatedWorld

__all__ = ["LongRings"]

# Below this, messages are as quick.
_FEWEST = 16

Times = NDArray[np.float64]


class LongRings:
    """The rings of a world that are priced as a whole; each waits until all its members are there."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._waiting: dict[tuple[int, tuple[int, ...]], dict[int, RankTask]] = {}
        self._connected: dict[tuple[int, tuple[int, ...]], _Cables] = {}

    def possible(self, members: Sequence[int], nbytes: int) -> bool:
        """Whether a ring of these ranks can be priced as a whole."""
        world = self._world
        hosts = {world.ranks[rank].host.number for rank in members}
        return (
            len(members) >= _FEWEST
            and len(hosts) == len(members)
            and not world.wires.sites
            and not world.wires.changes
            and nbytes <= SEGMENT_BYTES * len(members)
        )

    def carry_out(self, channel: int, members: tuple[int, ...], rank: int, vector: Tensor) -> Sent | None:
        """The task that runs now takes part; it goes on when its part of the ring is done. None: it is not possible."""
        if not self.possible(members, vector.nbytes):
            return None
        engine, elements, width = self._world.engine, vector.numel(), vector.element_size()
        task = engine.task
        waiting = self._waiting.setdefault((channel, members), {})
        waiting[rank] = task
        if len(waiting) == len(members):
            del self._waiting[channel, members]
            engine.at(
                max(each.clock for each in waiting.values()), self._price, channel, members, waiting, elements, width
            )
        task.block(lambda: f"for a ring of {len(members)} ranks, of which {len(waiting)} are there")
        return _sent_in_ring(members.index(rank), len(members), elements, width)

    def _price(
        self, channel: int, members: tuple[int, ...], tasks: dict[int, RankTask], elements: int, width: int
    ) -> None:
        world, carrier, count = self._world, self._world.wires.carrier, len(members)
        cables = self._connected.get((channel, members))
        if cables is None:
            cables = self._connected[channel, members] = _Cables(world, members)
        # As `tensor_split` cuts: the first chunks are longer by one where they don't divide evenly.
        chunks = np.full(count, elements // count, dtype=np.float64)
        chunks[: elements % count] += 1
        chunks *= width
        clock: Times = np.array([tasks[rank].clock for rank in members])
        left: Times = np.full(count, -np.inf)
        sending = np.zeros(count)
        own = np.arange(count)
        # A rank asks for some pieces ahead; who sends a long one hears of that after the way back.
        asked: deque[Times] = deque([clock] * AHEAD)
        for hop in range(2 * (count - 1)):
            size = chunks[(own - hop) % count]
            work = np.where(size > 0, carrier.send_seconds + carrier.send_seconds_per_byte * size, 0.0)
            clock = clock + work
            sending += work
            if hop:
                asked.append(clock)
            ready = np.roll(asked.popleft(), -1) + cables.delay_back
            begin, sent = np.maximum(clock, left), size > 0
            begin = np.where(size > carrier.rendezvous_bytes, np.maximum(begin, ready), begin)
            # Nothing is sent of an empty chunk, and nobody waits for it.
            left = np.where(sent, begin + size / cables.rate + cables.lag(begin, size), left)
            cables.used = np.where(sent, left, cables.used)
            late = carrier.receive_seconds + carrier.wake_seconds
            arrived = np.roll(np.where(sent, left + cables.delay + late, -np.inf), 1)
            clock = np.maximum(clock, arrived)
        clock = np.maximum(clock, left)
        received = carrier.receive_seconds * 2 * (count - 1)
        for place, rank in enumerate(members):
            task, host = tasks[rank], world.ranks[rank].host
            total = 2 * float(chunks.sum()) * (count - 1) / count
            world.charge(host, received + carrier.receive_seconds_per_byte * total)
            host.worked += float(sending[place])
            if task.beside:
                host.charged += float(sending[place])
            task.clock = float(clock[place])
            world.engine.at(task.clock, task.resume)


def _sent_in_ring(place: int, count: int, elements: int, width: int) -> Sent:
    """Chunk (place - hop) goes out at each of the 2 (n - 1) hops: all chunks twice, but for two."""
    lengths = [elements // count + (chunk < elements % count) for chunk in range(count)]
    kept = [lengths[(place + 1) % count], lengths[(place + 2) % count]]
    empty = 2 * lengths.count(0) - kept.count(0)
    return Sent((2 * elements - sum(kept)) * width, 2 * (count - 1) - empty)


class _Cables:
    """From each member to the next: what `flows` knows of their connections, as vectors."""

    def __init__(self, world: SimulatedWorld, members: Sequence[int]) -> None:
        cables, wires = world.wires.cables, world.wires
        hosts = [world.ranks[rank].host.number for rank in members]
        pairs = list(zip(hosts, [*hosts[1:], hosts[0]], strict=True))
        self.rate = np.array([min(cables[a].up, cables[b].down, UNLIMITED) for a, b in pairs])
        self.delay = np.array([wires.delay(a, b) for a, b in pairs])
        self.delay_back = np.array([wires.delay(b, a) for a, b in pairs])
        self._round_trip = self.delay + self.delay_back
        self._full = self._round_trip * self.rate
        self._window = np.full(len(members), 0.0)
        self._carrier = wires.carrier
        self.used: Times = np.full(len(members), -np.inf)

    def lag(self, begin: Times, size: Times) -> Times:
        """Time in which messages wait for answers while TCP's window is small."""
        lag = np.zeros_like(begin)
        sent = np.zeros_like(begin)
        used = (size > 0) & (self._round_trip > 0)
        pauses = np.minimum((begin - self.used) / (self._carrier.pause_seconds + self._round_trip), LONGEST_PAUSE)
        before = np.maximum(float(self._carrier.initial_window), self._window * 0.5 ** np.floor(pauses))
        self._window = np.where(used, before, self._window)
        while True:
            small = used & (self._window < self._full) & (sent + self._window < size)
            if not small.any():
                break
            lag = np.where(small, lag + self._round_trip * (1 - self._window / np.maximum(self._full, 1e-300)), lag)
            sent = np.where(small, sent + self._window, sent)
            self._window = np.where(small, 2 * self._window, self._window)
        wider = np.maximum(self._window, np.minimum(before + size, 2 * size))
        self._window = np.where(used, wider, self._window)
        return lag
