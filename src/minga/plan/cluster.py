"""The machines that a plan is for: a TOML file.

    nodes = 4
    price_per_hour = 0.05          # of each node

    [network]
    bandwidth = "100mbit"
    delay = "10ms"
    hosts.h2.bandwidth = "20mbit"

`minga probe` writes one with what it has measured (`to_toml`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tomli_w

from minga.base.config import Config, FieldError, build
from minga.base.units import format_bandwidth
from minga.comm.probing import Links
from minga.comm.simulated import Carrier, Wires
from minga.comm.tcp.frames import SHORT_BYTES
from minga.runs.network import Network
from minga.simulate.wiring import wires_of

__all__ = ["CarrierCosts", "PlannedCluster", "cluster_of", "to_toml"]

# Faster than any cable: a loopback's bandwidth is no limit, but work of the core.
_NO_CABLE = 8e9


@dataclass(frozen=True, kw_only=True)
class CarrierCosts(Config):
    """What messages cost besides the time on the wire."""

    kind = "carrier"

    send_seconds: float = 1e-4
    """Of the sender, for a message however small."""
    receive_seconds: float = 1e-4
    """Of the receiver."""
    send_seconds_per_byte: float = 1e-9
    receive_seconds_per_byte: float = 2e-9
    """Taken from a rank that computes meanwhile."""
    wake_seconds: float = 5e-5
    """Until who waits for a message goes on, when it is there."""

    def check(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < 10:
                raise FieldError((name,), f"should be seconds, 0 or a little more, not {value:g}")

    def carrier(self) -> Carrier:
        return Carrier(rendezvous_bytes=SHORT_BYTES, **vars(self))


@dataclass(frozen=True, kw_only=True)
class PlannedCluster(Config):
    """Nodes, what joins them, and what they cost."""

    kind = "cluster"

    nodes: int = 2
    """How many there are; a plan may use fewer."""

    speeds: tuple[float, ...] = ()
    """Of each node, relative to the device of the profile: 1,1,0.5; empty: all like it."""

    network: Network = field(default_factory=Network)
    """Their cables, as for a lab."""

    delays: tuple[tuple[float, ...], ...] = ()
    """Measured seconds from node to node, instead of the cables' delays; the first index sends."""

    carrier: CarrierCosts = field(default_factory=CarrierCosts)
    """What messages cost besides the time on the wire."""

    price_per_hour: float = 0.0
    """Of each node."""

    idle_watts: float = 5.0
    """Of a node that does nothing."""

    core_watts: float = 10.0
    """What computing adds to that."""

    def check(self) -> None:
        if not 1 <= self.nodes <= 100_000:
            raise FieldError(("nodes",), f"should be from 1 to 100000, not {self.nodes}")
        if self.speeds and len(self.speeds) != self.nodes:
            raise FieldError(("speeds",), f"should have {self.nodes} values, one for each node, not {len(self.speeds)}")
        if any(not 0 < speed < math.inf for speed in self.speeds):
            raise FieldError(("speeds",), f"should be numbers above 0, not {list(self.speeds)}")
        if self.delays and [len(row) for row in self.delays] != [self.nodes] * self.nodes:
            raise FieldError(("delays",), f"should be a table of {self.nodes} rows with {self.nodes} numbers each")
        if any(not 0 <= delay < 60 for row in self.delays for delay in row):
            raise FieldError(("delays",), "should be seconds, from 0 to less than 60")
        for name in ("price_per_hour", "idle_watts", "core_watts"):
            if not 0 <= getattr(self, name) < 1e9:
                raise FieldError((name,), f"should be 0 or more, not {getattr(self, name):g}")
        try:
            self.network.check_hosts(self.nodes)
        except FieldError as error:
            raise error.inside("network") from None

    def wires(self, hosts: int, order: tuple[int, ...] = ()) -> Wires:
        """The cables of hosts: of these nodes, and of more beyond them, for servers of their own, like the first."""
        every = replace(wires_of(self.network, self.nodes, self.carrier.carrier()), delays=self.delays)
        chosen = list(order) or list(range(min(hosts, self.nodes)))
        places = [*chosen, *[chosen[0]] * (hosts - len(chosen))]
        wires = every.in_order(places)
        if not self.delays or hosts == len(chosen):
            return wires
        near = min((delay for node, delay in enumerate(self.delays[chosen[0]]) if node != chosen[0]), default=0.0)
        delays = tuple(
            tuple(near if i != j and places[i] == places[j] else delay for j, delay in enumerate(row))
            for i, row in enumerate(wires.delays)
        )
        return replace(wires, delays=delays)

    def speed_of(self, node: int) -> float:
        return self.speeds[node] if node < len(self.speeds) else 1.0

    def width_of(self, node: int) -> float:
        """Bits a second of its cable, the slower way."""
        link = self.network.link_of(f"h{node + 1}")
        return min(rate or math.inf for rate in (link.bandwidth_up, link.bandwidth_down))

    def best_nodes(self, count: int) -> tuple[int, ...]:
        """The fastest so many, by their numbers; of equal ones those with the widest cables, then the nearest."""

        def worth(node: int) -> tuple[float, float, float, int]:
            far = sum(self.delays[node]) if self.delays else self.network.link_of(f"h{node + 1}").delay
            return -self.speed_of(node), -self.width_of(node), far, node

        return tuple(sorted(sorted(range(self.nodes), key=worth)[:count]))


def cluster_of(links: Links, speeds: Sequence[float] = ()) -> PlannedCluster:
    """What was measured, as a cluster: each host's cable is as fast as its best pair was."""
    return build(PlannedCluster, {**_table(links), "speeds": list(speeds)})


def to_toml(links: Links) -> str:
    """For `minga plan --cluster`; people may add prices, speeds and watts."""
    return "# As measured by minga probe. Add price_per_hour, speeds or watts as you like.\n" + tomli_w.dumps(
        _table(links)
    )


def _table(links: Links) -> dict[str, Any]:
    nodes = len(links.delay)
    hosts: dict[str, Any] = {}
    for rank in range(nodes):
        ways = {name: 8 * rate for name, rate in zip(("up", "down"), links.of_host(rank), strict=True)}
        known = {name: format_bandwidth(float(f"{rate:.3g}")) for name, rate in ways.items() if 0 < rate < _NO_CABLE}
        if known:
            hosts[f"h{rank + 1}"] = known
    # The way of a short message has the work for a message in it, at both ends.
    message = float(f"{links.message_seconds:.3g}")
    # Not all pairs are measured where there are many: the others are as far as those are in the middle.
    measured = sorted(value for row in links.delay for value in row if value > 0)
    usual = measured[len(measured) // 2] if measured else 0.0
    delays = [
        [0.0 if a == b else float(f"{max(0.0, (links.delay[a][b] or usual) - 2 * message):.4g}") for b in range(nodes)]
        for a in range(nodes)
    ]
    stolen = float(f"{links.stolen_seconds_per_byte:.3g}")
    carrier = {
        "send_seconds": message,
        "receive_seconds": message,
        "wake_seconds": 0.0,
        "send_seconds_per_byte": 0.0,
        "receive_seconds_per_byte": stolen,
    }
    return {"nodes": nodes, "delays": delays, "network": {"hosts": hosts}, "carrier": carrier}
