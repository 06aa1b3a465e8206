"""Where ranks meet: a small key-value store outside of all ranks, held by the launcher or by a process of its own.

torch's `TCPStore` would listen on all interfaces; it is given a socket that listens on one address only.
"""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from minga.errors import PortBusy

__all__ = ["hold_meeting", "join_meeting", "main"]


@contextlib.contextmanager
def hold_meeting(address: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """Listen at `address`; the port, which is a free one unless one is asked for."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(256)
    except OSError as error:
        listener.close()
        raise PortBusy(
            f"can't listen on {address}, port {port}: {error.strerror}. "
            "Leave the port out (cluster.port = 0 takes a free one), or choose another"
        ) from None
    chosen = int(listener.getsockname()[1])
    store: Any = dist.TCPStore(  # type: ignore[attr-defined]
        address,
        chosen,
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
        timeout=timedelta(seconds=30),
    )
    try:
        yield chosen
    finally:
        del store


def main(arguments: Mapping[str, Any]) -> int:
    """A process that does nothing but hold a meeting, until it is ended."""
    with hold_meeting(arguments["address"], arguments["port"]):
        while True:
            signal.pause()


def join_meeting(address: str, port: int, name: str, timeout_seconds: float) -> Any:
    """A rank's way to the store; `name` keeps two runs apart that should ever come to the same one."""
    timeout = timedelta(seconds=timeout_seconds)
    store = dist.TCPStore(  # type: ignore[attr-defined]
        address, port, is_master=False, wait_for_workers=False, timeout=timeout
    )
    return dist.PrefixStore(name, store)  # type: ignore[attr-defined]
