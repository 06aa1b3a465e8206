"""Which network interface leads where, and in words what is wrong when none does.

    interface_towards("10.0.0.1")     # Interface(name="eth0", address="10.0.0.7")
    address_of("wlan0")               # "192.168.1.5", or an error that lists the interfaces there are

A machine with several networks often announces the address of the wrong one. That shows as a connection that is never
made, so failures are explained with the interface that was used and those that were not.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
from dataclasses import dataclass

from minga.errors import ConfigError, unknown
from minga.net.generation import MemberInfo

__all__ = [
    "Interface",
    "address_of",
    "explain",
    "interface_towards",
    "interfaces",
    "own_address_towards",
    "unreachable",
    "unusable",
]

_ANY_PORT = 9
_CONNECT_SECONDS = 2.0


@dataclass(frozen=True)
class Interface:
    """A network interface that is up, with one of its addresses."""

    name: str
    address: str

    def __str__(self) -> str:
        return f"{self.name} ({self.address})"


def interfaces() -> list[Interface]:
    """Those that are up and have an IPv4 address."""
    import psutil  # type: ignore[import-untyped]

    stats = psutil.net_if_stats()
    return [
        Interface(name, entry.address)
        for name, entries in psutil.net_if_addrs().items()
        if name in stats and stats[name].isup
        for entry in entries
        if entry.family == socket.AF_INET
    ]


def address_of(name: str) -> str:
    """The address of an interface that somebody chose (`--interface NAME`)."""
    there = interfaces()
    for interface in there:
        if interface.name == name:
            return interface.address
    listed = ", ".join(str(interface) for interface in there)
    raise unknown("interface", name, [interface.name for interface in there], f"Up and with an address: {listed}")


def own_address_towards(address: str, port: int = _ANY_PORT) -> str:
    """The address of the interface that leads to `address`: the one where others can reach this machine."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, port))  # for UDP this only looks up the route; nothing is sent
        return str(probe.getsockname()[0])


def interface_towards(address: str) -> Interface:
    """The interface that packets to `address` leave by; `ConfigError` if there is no way."""
    try:
        own = own_address_towards(address)
    except OSError as error:
        listed = ", ".join(str(interface) for interface in interfaces()) or "none"
        raise ConfigError(
            f"there is no way from here to {address} ({error.strerror or error}); interfaces that are up: {listed}. "
            "Connect this machine to that network, or give another address"
        ) from None
    return next((interface for interface in interfaces() if interface.address == own), Interface("unknown", own))


def explain(address: str, port: int, error: Exception, source: str | None = None) -> str:
    """Why a connection to `address` was not made, and what to do; `source`: the own address that was asked for."""
    what = f"can't connect to {address}:{port}"
    if source is not None:
        used = next((str(there) for there in interfaces() if there.address == source), source)
    else:
        try:
            used = str(interface_towards(address))
        except ConfigError as no_way:
            return f"{what}: {no_way}"
    others = [str(there) for there in interfaces() if str(there) != used and not there.address.startswith("127.")]
    choice = f"; other interfaces here: {', '.join(others)} (choose one with --interface NAME)" if others else ""
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.ECONNREFUSED:
        return f"{what} by {used}: that machine answers, but nobody listens there; look at the port"
    if number in (errno.EADDRNOTAVAIL, errno.EINVAL) and source is not None:
        return f"{what} by {used}: packets to that address can't leave from {source}{choice}"
    if isinstance(error, socket.gaierror):
        return f"{what}: the name can't be looked up ({error.strerror}); give an IP address"
    if isinstance(error, TimeoutError) or number in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT):
        return (
            f"{what} by {used}: no answer. A firewall on the way, a machine that is off, or the wrong network{choice}"
        )
    return f"{what} by {used}: {error}{choice}"


def unusable(announced: str, seen: str) -> str:
    """Why nobody can use an announced address, judging by `seen`, where it was announced from; empty if unclear."""
    try:
        address, origin = ipaddress.ip_address(announced), ipaddress.ip_address(seen)
    except ValueError:
        return ""
    if address.is_unspecified:
        return f"{announced} stands for all addresses of a machine; announce one that others can reach, such as {seen}"
    if address.is_loopback and not origin.is_loopback:
        return (
            f"{announced} is the loopback of each machine, where others find themselves; announce an address that "
            f"they can reach: this connection comes from {seen} (choose its interface with --interface NAME)"
        )
    return ""


async def unreachable(info: MemberInfo, seen_from: str) -> str:
    """Why others would not reach a member, with what to do: connect to it, once, and hang up. Empty if they would."""
    reason = unusable(info.address, seen_from)
    if reason:
        return f"{info.id} announces its port for data, {info.address}:{info.port}, but {reason}"
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(info.address, info.port)
    except (OSError, TimeoutError) as error:
        # asyncio's own text would name the address again.
        why = (
            "no answer" if isinstance(error, TimeoutError) else os.strerror(error.errno) if error.errno else str(error)
        )
        hint = f" Its connection to the coordinator comes from {seen_from}: announce that address, or choose"
        if seen_from == info.address:
            hint = " Look whether it listens there, for a firewall that keeps others from its ports, or choose"
        return (
            f"the coordinator can't reach {info.id}'s port for data, {info.address}:{info.port} ({why})."
            f"{hint} the right interface with --interface NAME"
        )
    writer.transport.abort()
    return ""
