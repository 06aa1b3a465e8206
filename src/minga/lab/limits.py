"""What a lab can have; a simulation may have more."""

from __future__ import annotations

from minga.base.units import format_bandwidth
from minga.errors import ConfigError
from minga.runs.network import Link, Network

__all__ = ["check_network", "check_rates"]

_MOST_HOSTS = 200
# Bits a second; slower, a packet takes longer than anybody waits, and faster than this no machine moves them.
_SLOWEST, _FASTEST = 64e3, 30e9


def check_network(network: Network, hosts: int) -> None:
    """`ConfigError` for more hosts than a lab can have, or for links that the kernel can't make."""
    network.check_hosts(hosts)
    if hosts > _MOST_HOSTS:
        raise ConfigError(f"a lab has at most {_MOST_HOSTS} hosts, not {hosts}; minga simulate can have more")
    for number in range(hosts):
        check_rates(network.link_of(f"h{number + 1}"))
    check_rates(network.between)


def check_rates(link: Link) -> None:
    """`ConfigError` for a link that the kernel can't make."""
    for rate in (link.bandwidth_up, link.bandwidth_down):
        if rate is not None and not _SLOWEST <= rate <= _FASTEST:
            raise ConfigError(
                f"a lab's links have from {format_bandwidth(_SLOWEST)} to {format_bandwidth(_FASTEST)}, not "
                f"{format_bandwidth(rate)}; minga simulate can have others"
            )
