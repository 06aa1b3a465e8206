"""What a lab can have (a simulation may have more), and whether this user may make one.

check_network(network, hosts=4); rootless = check_rights()
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys

from minga.base.units import format_bandwidth
from minga.errors import ConfigError, LabError
from minga.measure.machine.lab import namespaces
from minga.runs.network import Link, Network

__all__ = ["check_network", "check_rates", "check_rights"]

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


def check_rights() -> bool:
    """Whether a user namespace is needed (False: we may make networks as we are). Raises LabError with a remedy."""
    if importlib.util.find_spec("pyroute2") is None:
        raise LabError("shaped networks need pyroute2; install it with: pip install 'minga[lab]'")
    finding = namespaces()
    if finding.state == "ok":
        return False
    if finding.state in ("limited", "unknown") and _user_namespace_works():
        return True
    remedy = finding.remedy or "run as root"
    raise LabError(
        f"no network namespaces can be made here ({finding.found}); {remedy}. "
        "Without a lab, leave out bandwidth, delay and cpu"
    )


def _user_namespace_works() -> bool:
    """Try it in a process of its own: some systems forbid it in ways that no file shows."""
    code = "from minga.lab.namespaces import *; unshare(USER | NETWORK)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
