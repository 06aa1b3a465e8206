"""Whether a newcomer's data door can be reached: connect to it, once, and hang up.

reason = await unreachable(info, seen_from="10.0.0.7")   # "" if it can
"""

from __future__ import annotations

import asyncio
import os

from minga.net.generation import MemberInfo
from minga.membership.interfaces import unusable

__all__ = ["unreachable"]

_CONNECT_SECONDS = 2.0


async def unreachable(info: MemberInfo, seen_from: str, timeout_seconds: float = _CONNECT_SECONDS) -> str:
    """Why others would not reach a member's data door, with what to do; empty if they would."""
    reason = unusable(info.address, seen_from)
    if reason:
        return f"{info.id} announces its data door at {info.address}:{info.port}, but {reason}"
    try:
        async with asyncio.timeout(timeout_seconds):
            _, writer = await asyncio.open_connection(info.address, info.port)
    except (OSError, TimeoutError) as error:
        # asyncio's own words would name the address again.
        why = (
            "no answer" if isinstance(error, TimeoutError) else os.strerror(error.errno) if error.errno else str(error)
        )
        hint = f" Its connection to the coordinator comes from {seen_from}: announce that address, or choose"
        if seen_from == info.address:
            hint = " Look whether it listens there, for a firewall that keeps others from its ports, or choose"
        return (
            f"the coordinator can't reach the data door of {info.id} at {info.address}:{info.port} ({why})."
            f"{hint} the right interface with --interface NAME"
        )
    writer.transport.abort()
    return ""
