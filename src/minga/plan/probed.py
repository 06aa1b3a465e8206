"""From measured links to a cluster's file, and back to people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tomli_w

from minga.base.config import build
from minga.base.units import format_bandwidth
from minga.comm.probing import Links
from minga.plan.cluster import PlannedCluster

__all__ = ["cluster_of", "to_toml"]

# Faster than any cable: a loopback's bandwidth is no limit, but work of the core.
_NO_CABLE = 8e9


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
