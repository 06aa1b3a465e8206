"""What has gone through the network interfaces of this process's host.

    meter = InterfaceMeter()
    meter.resume(); ...; meter.pause()
    print(meter.counts.payload_sent)

The kernel shows a process the interfaces of its own network namespace. On a host of a lab these carry the traffic of
this process alone, so they are an account of it that nothing in Minga could get wrong.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["HEADER_BYTES", "InterfaceCounts", "InterfaceMeter", "read_interfaces", "wait_until_sent"]

HEADER_BYTES = 66
"""Of a packet: Ethernet 14, IPv4 20, TCP with timestamps 32."""

_DEVICES = Path("/proc/self/net/dev")
_CONNECTIONS = Path("/proc/self/net/tcp")
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class InterfaceCounts:
    """Counters of all interfaces but loopback, added up; or the difference of two readings."""

    bytes_sent: int = 0
    bytes_received: int = 0
    packets_sent: int = 0
    packets_received: int = 0

    def __add__(self, other: InterfaceCounts) -> InterfaceCounts:
        return InterfaceCounts(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    def __sub__(self, other: InterfaceCounts) -> InterfaceCounts:
        return InterfaceCounts(**{name: value - getattr(other, name) for name, value in vars(self).items()})

    @property
    def payload_sent(self) -> int:
        """What TCP carried away from here: the bytes without 66 bytes of headers for each packet.

        This is exact for data and bare acknowledgements, whether they leave as packets or as the large pieces of
        segmentation offload: an interface counts such a piece as one packet with one header. Repeated packets count
        each time. What has other headers makes a difference of a few bytes each: ARP, the handshake of a new
        connection, acknowledgements after losses.
        """
        return self.bytes_sent - HEADER_BYTES * self.packets_sent

    def to_dict(self) -> dict[str, int]:
        return {**asdict(self), "payload_sent": self.payload_sent}


class InterfaceMeter:
    """Counts what goes through the interfaces between `resume` and `pause`, all times together.

    The kernel takes bytes from a process much sooner than a slow link can carry them. Both therefore wait (not for
    long) until what was sent before has gone out, so that it counts where it belongs.
    """

    def __init__(self) -> None:
        self._since: InterfaceCounts | None = None
        self.counts: InterfaceCounts | None = None
        """So far; None where there is nothing to read."""

    def resume(self) -> None:
        wait_until_sent()
        self._since = read_interfaces()

    def pause(self) -> None:
        if self._since is None:
            return
        wait_until_sent()
        now = read_interfaces()
        if now is not None:
            self.counts = (self.counts or InterfaceCounts()) + (now - self._since)
        self._since = None


def wait_until_sent(path: Path = _CONNECTIONS, patience_seconds: float = _PATIENCE_SECONDS) -> None:
    """Return when the other sides have everything that was sent, or after a while."""
    deadline = time.monotonic() + patience_seconds
    while _unsent_bytes(path) and time.monotonic() < deadline:
        time.sleep(0.001)


def _unsent_bytes(path: Path) -> int:
    try:
        lines = path.read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return 0
    return sum(int(line.split()[4].partition(":")[0], 16) for line in lines)


def read_interfaces(path: Path = _DEVICES) -> InterfaceCounts | None:
    """The counters now; None on systems that have no such file."""
    try:
        text = path.read_text(encoding="ascii")
    except OSError:
        return None
    total = InterfaceCounts()
    for line in text.splitlines()[2:]:  # two lines of headings
        name, _, numbers = line.partition(":")
        counts = [int(number) for number in numbers.split()]
        if name.strip() != "lo" and len(counts) >= 10:
            total += InterfaceCounts(
                bytes_received=counts[0], packets_received=counts[1], bytes_sent=counts[8], packets_sent=counts[9]
            )
    return total
