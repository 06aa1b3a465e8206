"""Cables and switches of a lab, made by a process that lives in the namespace they belong to.

    make_bridge("site1")
    make_pair("h1", "eth0", pid_of_h1)          # a cable: one end here, the other with the host
    shape("h1", bits_per_second=10e6)

Everything goes to the kernel through netlink. A rate holds for what *leaves* through an interface, so a cable has
one at each end.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import ipaddress
import os
import struct
from hashlib import sha256
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute  # type: ignore[import-untyped]
from pyroute2.netlink.exceptions import NetlinkError  # type: ignore[import-untyped]

__all__ = [
    "PAYLOAD_BYTES",
    "add_address",
    "add_route",
    "cut_segments",
    "has_netem",
    "join_bridge",
    "make_bridge",
    "make_island",
    "make_pair",
    "open_tap",
    "quiet",
    "restore_route",
    "set_link",
    "shape",
    "tbf_rate",
]

MTU = 1500
FRAME_BYTES = MTU + 14
# 20 bytes of IPv4 and 32 of TCP with timestamps are no payload, and the 14 of Ethernet count towards a rate, too.
PAYLOAD_BYTES = MTU - 52

_CONGESTION_CONTROL = "cubic"
# The kernel keeps bursts as times, and TCP reckons with longer headers than there are.
_ROUNDING, _LONGEST_HEADERS = 100, 321
_LARGEST_PIECE = 65536
# The second limit on a way has room for what the first lets through at once, or each piece would wait twice.
_BEHIND = 3

_TUNSETIFF = 0x400454CA
_TUNSETOFFLOAD = 0x400454D0
_TAP, _NO_INFORMATION, _OFFLOAD_HEADER = 0x0002, 0x1000, 0x4000
_ROOT = 0xFFFFFFFF
_CHECKSUM, _SEGMENTS_4, _SEGMENTS_6 = 0x01, 0x02, 0x04


def _index(kernel: Any, name: str) -> int:
    found = kernel.link_lookup(ifname=name)
    if not found:
        raise OSError(errno.ENODEV, f"no interface {name}")
    return int(found[0])


def quiet() -> None:
    """In a new namespace: loopback up, and no chatter of IPv6 that would be counted as traffic."""
    for setting in ("all", "default"):
        with contextlib.suppress(OSError):  # a kernel without IPv6
            Path(f"/proc/sys/net/ipv6/conf/{setting}/disable_ipv6").write_text("1", encoding="ascii")
    with contextlib.suppress(OSError):
        # What one connection has learned of a link must not decide how the next one begins.
        Path("/proc/sys/net/ipv4/tcp_no_metrics_save").write_text("1", encoding="ascii")
    with IPRoute() as kernel:
        kernel.link("set", index=_index(kernel, "lo"), state="up")


def make_bridge(name: str) -> None:
    """A switch."""
    with IPRoute() as kernel:
        # With an address of its own: otherwise it takes that of a cable, and another one when that cable is moved.
        address = ":".join(["02", *(f"{byte:02x}" for byte in sha256(name.encode()).digest()[:5])])
        kernel.link("add", ifname=name, kind="bridge", br_stp_state=0, br_mcast_snooping=0, address=address)
        kernel.link("set", index=_index(kernel, name), state="up")


def make_island(name: str) -> None:
    """A switch that leads nowhere: hosts on it have each other, and nothing shows them that the rest is gone."""
    make_bridge(name)
    # This namespace has an address on another switch, and must not answer for it here.
    Path(f"/proc/sys/net/ipv4/conf/{name}/arp_ignore").write_text("1", encoding="ascii")


def set_link(name: str, *, up: bool) -> None:
    """Plug a cable in or pull it out at this end, which the kernel notices and reports."""
    with IPRoute() as kernel:
        kernel.link("set", index=_index(kernel, name), state="up" if up else "down")


def make_pair(name: str, other: str, pid: int | None) -> None:
    """A cable between an interface here and one in the namespace of a process (None: here too)."""
    peer: dict[str, Any] = {"ifname": other}
    if pid is not None:
        peer["net_ns_pid"] = pid
    with IPRoute() as kernel:
        kernel.link("add", ifname=name, kind="veth", peer=peer)


def join_bridge(name: str, bridge: str) -> None:
    """Plug an interface into a switch."""
    with IPRoute() as kernel:
        kernel.link("set", index=_index(kernel, name), master=_index(kernel, bridge), mtu=MTU, state="up")


def add_address(name: str, address: str, prefix: int) -> None:
    """An address, and the way to its neighbours."""
    with IPRoute() as kernel:
        index = _index(kernel, name)
        kernel.link("set", index=index, mtu=MTU, state="up")
        kernel.addr("add", index=index, address=address, prefixlen=prefix)
    restore_route(name, address, prefix)


def restore_route(name: str, address: str, prefix: int) -> None:
    """The way to the neighbours, which the kernel forgets when a cable is pulled out."""
    network = str(ipaddress.ip_network(f"{address}/{prefix}", strict=False).network_address)
    add_route(network, name, prefix, address)


def add_route(destination: str, name: str, prefix: int = 32, source: str | None = None) -> None:
    """Reach addresses through this interface, with the TCP that most machines have, whatever this one's default is.

    Said of the route, since a namespace's own default may only be chosen from a short list.
    """
    with IPRoute() as kernel:
        route: dict[str, Any] = {"dst": destination, "dst_len": prefix, "oif": _index(kernel, name), "scope": 253}
        if source is not None:
            route["prefsrc"] = source
        with contextlib.suppress(NetlinkError):  # a kernel without it keeps its default
            kernel.route("replace", **route, metrics={"cc_algo": _CONGESTION_CONTROL})
            return
        kernel.route("replace", **route)


def open_tap(name: str) -> int:
    """An interface whose packets are read and written by whoever has the descriptor.

    Segmentation is left to the reader, so TCP hands over large pieces, each behind a header that says how to cut it;
    writing the same header to another such interface passes that on. A relay then handles a few thousand pieces in a
    second instead of a hundred thousand packets.
    """
    try:
        descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        remedy = "as root: modprobe tun; chmod a+rw /dev/net/tun"
        raise OSError(
            error.errno, f"this kernel has no netem, and for delays without it /dev/net/tun is needed; {remedy}"
        ) from None
    request = struct.pack("16sH22x", name.encode(), _TAP | _NO_INFORMATION | _OFFLOAD_HEADER)
    try:
        fcntl.ioctl(descriptor, _TUNSETIFF, request)
        fcntl.ioctl(descriptor, _TUNSETOFFLOAD, _CHECKSUM | _SEGMENTS_4 | _SEGMENTS_6)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def cut_segments(name: str, *, cut: bool) -> None:
    """Have TCP send packet by packet instead of in large pieces: only so does a lost packet cost one packet."""
    with IPRoute() as kernel:
        kernel.link("set", index=_index(kernel, name), gso_max_segs=1 if cut else 65535)


def has_netem() -> bool:
    """Whether this kernel can delay packets itself: try it on loopback of this (our own) namespace."""
    with IPRoute() as kernel:
        index = _index(kernel, "lo")
        try:
            kernel.tc("add", "netem", index=index, handle="1:", delay=1000)
        except NetlinkError:
            return False
        kernel.tc("del", index=index, parent=_ROOT)
        return True


def tbf_rate(bits_per_second: float) -> tuple[int, int, int]:
    """Bytes per second, burst and queue of the token bucket that lets TCP carry this much payload.

    The burst is a millisecond's worth or four packets: with more, small messages would travel for nothing on a slow
    link; with less, the kernel's timers can't fill a fast one, and on a slow one take time from those who compute. The
    queue is a tenth of a second.
    """
    rate = bits_per_second / 8 * FRAME_BYTES / PAYLOAD_BYTES
    burst = max(int(rate * 0.001), 4 * FRAME_BYTES + _ROUNDING)
    queue = max(int(rate * 0.1), 16 * FRAME_BYTES)
    return int(rate), burst, queue


def shape(
    name: str,
    bits_per_second: float | None,
    *,
    netem: dict[str, float] | None = None,
    behind: bool = False,
    change: bool = False,
) -> None:
    """Limit what leaves through an interface; where the kernel can, also delay and lose it (times in seconds).

    `behind`: what comes here has passed another limit already, and may come in its bursts.
    """
    with IPRoute() as kernel:
        index = _index(kernel, name)
        parent: dict[str, Any] = {"parent": _ROOT}
        if netem is not None:
            kernel.tc(
                "replace",
                "netem",
                index=index,
                handle="1:",
                delay=round(netem["delay"] * 1e6),
                jitter=round(netem["jitter"] * 1e6),
                loss=netem["loss"] * 100,
                limit=100_000,
            )
            parent = {"parent": "1:1"}
        if bits_per_second is not None:
            rate, burst, queue = tbf_rate(bits_per_second)
            burst *= _BEHIND if behind else 1
            kernel.tc("replace", "tbf", index=index, handle="2:", rate=rate, burst=burst, limit=queue, **parent)
            kernel.link("set", index=index, gso_max_size=_largest_piece(burst))
        elif change:
            kernel.link("set", index=index, gso_max_size=_LARGEST_PIECE)
            with contextlib.suppress(NetlinkError):  # there was no limit before either
                kernel.tc("del", index=index, handle="2:", **parent)


def _largest_piece(burst: int) -> int:
    """What TCP may hand over at once: a larger piece would be cut into packets, each of them with a timer of its own.

    These interrupts take time from whoever computes on the same core, which no network card does.
    """
    packets = max(1, (burst - _ROUNDING) // FRAME_BYTES)
    return min(_LARGEST_PIECE, packets * PAYLOAD_BYTES + _LONGEST_HEADERS)
