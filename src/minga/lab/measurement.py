"""Measures the cables of a lab before a run, all at once, each one apart from the others: between host and switch.

What is found beside what was asked: goodput up and down (bits of TCP payload per second), delay (one way, what leaves
the host; the way back is not delayed) and loss. A rate that is off is measured again, alone and for longer, since all
cables together may be more than this machine can carry; the second measurement then counts. The cable between two
sites is measured between a host of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minga.lab.agent import Agent, start_agent
from minga.lab.cables import PAYLOAD_BYTES
from minga.runs.network import Link

__all__ = ["Measurement"]

_PINGS = 21
_PINGS_WITH_LOSS = 1001
_PING_BITS = 60 * 8
_TOLERANCE = 0.03
_AGAIN = 4
"""How much longer a second measurement is."""


class Measurement:
    """The agents and cables of a lab, to be measured."""

    def __init__(
        self,
        agents: Mapping[str, Agent],
        links: Mapping[str, Link],
        hosts: Mapping[str, Mapping[str, Any]],
        switch_address: str,
    ) -> None:
        self._agents = agents
        self._links = links
        self._hosts = hosts
        self._switch_address = switch_address
        self._partners: dict[str, Agent] = {}

    def measure(self, between: Link | None) -> list[dict[str, Any]]:
        """A row for each host's cable, and one for the cable between the sites."""
        rows: dict[str, dict[str, Any]] = {name: {"host": name} for name in self._links}
        try:
            for name in self._links:
                # One for each host, at the switch: all cables are measured at the same time.
                self._partners[name] = start_agent(f"partner of {name}", beside=self._agents["switch"].pid)
            # Before the rates: these leave full queues behind them.
            for name, (delay, loss) in self._delays().items():
                link = self._links[name]
                rows[name] |= {"delay_asked": link.delay, "delay_measured": delay}
                rows[name] |= {"loss_asked": link.loss, "loss_measured": loss}
            for direction in ("up", "down"):
                ways = {name: self._way(direction, name) for name in self._links}
                for name, found in _rates(ways).items():
                    rows[name] |= {f"{direction}_asked": ways[name].rate, f"{direction}_measured": found}
        finally:
            for partner in self._partners.values():
                partner.end()
        if between is None:
            return list(rows.values())
        return [*rows.values(), self._between(between, rows)]

    def _way(self, direction: str, name: str) -> _Way:
        """Between a host and the switch."""
        host, partner, link = self._agents[name], self._partners[name], self._links[name]
        if direction == "up":
            return _Way(host, partner, self._switch_address, link.bandwidth_up, link.delay, link.loss)
        return _Way(partner, host, self._hosts[name]["address"], link.bandwidth_down, link.delay, link.loss)

    def _delays(self) -> dict[str, tuple[float | None, float]]:
        """Seconds one way and the part of packets lost, by host."""
        for name, link in self._links.items():
            port = self._partners[name].ask("echo", address=self._switch_address)
            self._agents[name].order("ping", address=self._switch_address, port=port, **_pings(link, link))
        found = {}
        for name in self._links:
            delay, loss = self._agents[name].answer()
            self._partners[name].answer()
            found[name] = (delay, loss)
        return found

    def _between(self, cable: Link, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The cable between two sites, from a host at each: what both hosts' own cables add to the delay is taken off.

        Its rate can't be seen where a host's own cable is slower.
        """
        first = next(name for name, host in self._hosts.items() if host["site"] == "site1")
        second = next(name for name, host in self._hosts.items() if host["site"] == "site2")
        row: dict[str, Any] = {"host": "between"}
        near, far = self._links[first], self._links[second]
        round_trip = 2 * cable.delay + near.delay + far.delay
        for direction, start, end, rate in (
            ("up", first, second, cable.bandwidth_up),
            ("down", second, first, cable.bandwidth_down),
        ):
            ends = (self._links[start].bandwidth_up, self._links[end].bandwidth_down)
            found: float | None = None
            if rate is None or all(slowest is None or slowest >= rate for slowest in ends):
                address = self._hosts[end]["address"]
                way = _Way(self._agents[start], self._agents[end], address, rate, round_trip, cable.loss)
                found = _rates({"between": way})["between"]
            row |= {f"{direction}_asked": rate, f"{direction}_measured": found}
        address = self._hosts[second]["address"]
        port = self._agents[second].ask("echo", address=address)
        trip, lost = self._agents[first].ask("ping", address=address, port=port, **_pings(cable, near, far, cable))
        self._agents[second].answer()
        own = sum(rows[name]["delay_measured"] or 0.0 for name in (first, second))
        row |= {"delay_asked": cable.delay, "delay_measured": None if trip is None else max(0.0, (trip - own) / 2)}
        # A datagram crosses the cable twice, and each host's own cable once; only one that survives all comes back.
        survived = min(1.0, (1 - lost) / ((1 - near.loss) * (1 - far.loss)))
        return row | {"loss_asked": cable.loss, "loss_measured": 1 - survived**0.5}


@dataclass(frozen=True)
class _Way:
    """Where bytes are sent, to see how fast they arrive."""

    sender: Agent
    receiver: Agent
    address: str
    """Of the receiver."""
    rate: float | None
    """What was asked for."""
    round_trip: float
    loss: float

    @property
    def seconds(self) -> float:
        """Long enough for some hundred packets, and for TCP to find out how fast the link is."""
        for_packets = 300 * PAYLOAD_BYTES * 8 / self.rate if self.rate else 0.0
        return min(max(0.3, for_packets), 4.0) + 15 * self.round_trip

    @property
    def window_bytes(self) -> int:
        """What may be under way at once: enough to fill the link, less than its queue holds (0: let TCP find out).

        Otherwise TCP fills the queue until packets get lost, and what lies behind a lost one arrives all at once: in a
        short measurement that looks like another rate.
        """
        if self.rate is None:
            return 0
        enough = int(self.rate / 8 * (self.round_trip + 0.04))
        return max(enough, 16_000) if enough < 200_000 else 0  # more than that, systems don't grant


def _rates(ways: Mapping[str, _Way], longer: int = 1) -> dict[str, float]:
    """Bits per second that arrive: on all ways at the same time, and where they are off once more, alone."""
    ports = {}
    for name, way in ways.items():
        details = {"address": way.address, "seconds": longer * way.seconds, "window_bytes": way.window_bytes}
        ports[name] = way.receiver.ask("receive", **details)
    for name, way in ways.items():
        way.sender.order("send", address=way.address, port=ports[name], seconds=longer * way.seconds)
    rates = {name: float(way.receiver.answer()) for name, way in ways.items()}
    for way in ways.values():
        way.sender.answer()
    for name, way in ways.items():
        # Loss slows TCP down, which is what it is there for.
        if longer == 1 and way.rate is not None and not way.loss and abs(rates[name] / way.rate - 1) > _TOLERANCE:
            rates |= _rates({name: way}, longer=_AGAIN)
    return rates


def _pings(measured: Link, *crossed: Link) -> dict[str, Any]:
    """How many datagrams, how far apart and how long to wait for them, on a way across some cables."""
    slowest = min((rate for link in crossed for rate in (link.bandwidth_up, link.bandwidth_down) if rate), default=1e9)
    spacing = max(0.002, 2 * _PING_BITS / slowest)
    count = min(_PINGS_WITH_LOSS, int(2 / spacing)) if measured.loss else _PINGS
    patience = sum(2 * (link.delay + link.jitter) for link in crossed) + 0.2 + 4 * spacing
    return {"count": count, "spacing": spacing, "patience": patience}
