"""The network of an experiment as the cables of a simulation."""

from __future__ import annotations

import math

from minga.comm.simulated import Cable, Carrier, ScheduledChange, Wires
from minga.errors import ConfigError
from minga.runs.network import Link, Network

__all__ = ["wires_of"]

_BITS = 8.0


def wires_of(
    network: Network | None, hosts: int, carrier: Carrier | None = None, changes: tuple[ScheduledChange, ...] = ()
) -> Wires:
    """None: links that cost nothing but what the carrier does."""
    network = network or Network()
    return Wires(
        cables=tuple(_cable(network.link_of(f"h{number + 1}")) for number in range(hosts)),
        carrier=carrier or Carrier(),
        sites=tuple(network.site_of(number) for number in range(hosts)) if network.sites else (),
        between=_cable(network.between),
        changes=changes,
    )


def _cable(link: Link) -> Cable:
    if link.loss or link.jitter:
        raise ConfigError("loss and jitter are not simulated: leave them out, or run in the lab (minga train)")
    return Cable(up=_bytes(link.bandwidth_up), down=_bytes(link.bandwidth_down), delay=link.delay)


def _bytes(bits: float | None) -> float:
    return math.inf if bits is None else bits / _BITS
