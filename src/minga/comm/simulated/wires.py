"""The network of a simulation: hosts with cables, what cables share, and what a message costs besides its bytes.

    wires = Wires(cables=(Cable(up=12.5e6, down=12.5e6, delay=0.01),) * 4)

`Wires` is what the network is like at the start; `ScheduledChange` is what happens to it on the way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

__all__ = ["Cable", "Carrier", "ScheduledChange", "Wires"]


@dataclass(frozen=True, kw_only=True)
class Carrier:
    """What it costs to send and to receive, besides the time on the wire."""

    send_seconds: float = 0.0
    """Work of the sender for a message, however small."""
    receive_seconds: float = 0.0
    """Work of the receiver for a message."""
    send_seconds_per_byte: float = 0.0
    receive_seconds_per_byte: float = 0.0
    """Work of the receiver for each byte: the core that does it does not train meanwhile."""
    wake_seconds: float = 0.0
    """Until somebody who waits for a message goes on, when it is there."""
    rendezvous_bytes: float = math.inf
    """A longer message is not sent before the receiver has said that it is ready."""
    initial_window: int = 14_480
    """Bytes that a connection sends at first without an answer, Linux' ten packets; twice as many in each round trip
    from then on."""
    pause_seconds: float = 0.2
    """In each part of a pause of this length (Linux' least retransmission timeout) and a round trip, half of that is
    lost again."""


@dataclass(frozen=True, kw_only=True)
class Cable:
    """A host's cable: bytes a second each way, and how long a packet takes from this host to others."""

    up: float = math.inf
    down: float = math.inf
    delay: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ScheduledChange:
    """What happens to hosts or their cables at a moment."""

    time: float
    host: int | None = None
    """Which one (None: all of them)."""
    up: float | None = None
    """Bytes a second from now on; 0: nothing gets through."""
    down: float | None = None
    delay: float | None = None
    speed: float | None = None
    """How fast the host computes from now on, relative to its profile."""
    lost: bool = False
    """Whether the host is gone for good."""


@dataclass(frozen=True, kw_only=True)
class Wires:
    """Hosts, cables and what several of them share."""

    cables: tuple[Cable, ...]
    carrier: Carrier = Carrier()
    sites: tuple[int, ...] = ()
    """The site of each host; empty: all are at one."""
    between: Cable = Cable()
    """The cable between two sites, which all traffic between them shares; `up` is from the first to the second."""
    delays: tuple[tuple[float, ...], ...] = ()
    """Measured one-way delays from host to host, instead of the cables'."""
    changes: tuple[ScheduledChange, ...] = ()

    @property
    def hosts(self) -> int:
        return len(self.cables)

    def delay(self, source: int, target: int) -> float:
        """Seconds from one host to another, besides the time for bytes."""
        if source == target:
            return 0.0
        if self.delays:
            return self.delays[source][target]
        shared = self.between.delay if self.sites and self.sites[source] != self.sites[target] else 0.0
        return self.cables[source].delay + shared

    def in_order(self, order: list[int]) -> Wires:
        """The same network with its hosts renumbered: host i is what was host order[i]."""
        delays = tuple(tuple(self.delays[a][b] for b in order) for a in order) if self.delays else ()
        sites = tuple(self.sites[each] for each in order) if self.sites else ()
        return replace(self, cables=tuple(self.cables[each] for each in order), delays=delays, sites=sites)
