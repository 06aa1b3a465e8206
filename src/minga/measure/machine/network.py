"""Loopback, interfaces, and the way to other machines.

    network(psutil.net_if_addrs(), psutil.net_if_stats(), outward_address())

Nothing is sent, except to this machine itself.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from typing import Any

from minga.measure.machine.findings import MachineFinding, first_line, make_finding
from minga.net.interfaces import own_address_towards

__all__ = ["loopback", "network", "outward_address"]

_ELSEWHERE = "203.0.113.1"
"""An address kept for documentation: nobody's own network, so it is reached by the default route or not at all."""


def loopback() -> MachineFinding:
    """Whether this machine can talk to itself; binding alone succeeds even where loopback is down."""
    try:
        with socket.create_server(("127.0.0.1", 0), backlog=1) as server:
            with socket.create_connection(server.getsockname(), timeout=2):
                pass
    except OSError as error:
        found = f"can't connect to 127.0.0.1: {first_line(error)}"
        remedy = "as root: ip link set lo up; else look for a firewall that forbids local connections"
        return make_finding("network", "loopback", "missing", found, remedy, needed=True)
    return make_finding("network", "loopback", "ok", "127.0.0.1 answers", needed=True)


def outward_address() -> str | None:
    """The address that a packet by the default route would leave from; none is sent."""
    try:
        return own_address_towards(_ELSEWHERE)
    except OSError:
        return None


def network(
    addresses: Mapping[str, Iterable[Any]], stats: Mapping[str, Any], outward: str | None
) -> list[MachineFinding]:
    """Interfaces that are up, as psutil shows them, and the one that `outward` belongs to."""
    up: dict[str, list[str]] = {}
    for name, entries in addresses.items():
        ours = [entry.address for entry in entries if entry.family == socket.AF_INET]
        if ours and name in stats and stats[name].isup and not ours[0].startswith("127."):
            up[name] = ours
    findings = []
    for name, ours in up.items():
        # Drivers of virtual and wireless interfaces say 0, or -1, which older versions of psutil show as 65535.
        speed = stats[name].speed if stats[name].speed not in (0, -1, 65535) else None
        found = f"{', '.join(ours)}; " + (f"{speed:,} Mbit/s" if speed else "speed unknown")
        values: dict[str, Any] = {"addresses": ours, "megabits_per_second": speed}
        findings.append(make_finding("network", f"interface {name}", "ok", found, **values))
    if outward is not None:
        used = next((name for name, ours in up.items() if outward in ours), None)
        found = f"{used or 'unknown interface'}, {outward} (default route)"
        return [*findings, make_finding("network", "to others", "ok", found, interface=used, address=outward)]
    remedy = "for runs on several machines, connect this one to their network"
    if up:
        found = f"no default route; only machines in the networks of {', '.join(up)}"
        return [*findings, make_finding("network", "to others", "limited", found, remedy)]
    return [make_finding("network", "to others", "missing", "no interface but loopback is up with an address", remedy)]
