"""Where the ranks of a fixed group find each other: a small key-value store outside of all of them.

    with hold_meeting() as port:                # the launcher, or a process of its own
        comm = join_group("127.0.0.1", port, "run-7", rank=0, size=4, address="127.0.0.1", timeout_seconds=120)

torch's `TCPStore` would listen on all interfaces; it is given a socket that listens on one address only.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from minga.base.lazy import lazy_module
from minga.net.sockets import listen

if TYPE_CHECKING:
    import torch.distributed as dist

    from minga.comm.torch_dist import TorchTransport
else:
    dist = lazy_module("torch.distributed")

__all__ = ["hold_meeting", "join_group", "join_meeting"]


@contextlib.contextmanager
def hold_meeting(address: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """Listen at `address`; the port, which is a free one unless one is asked for."""
    listener = listen(address, port)
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


def join_meeting(address: str, port: int, name: str, timeout_seconds: float) -> Any:
    """A rank's way to the store; `name` keeps two runs apart that should ever come to the same one."""
    timeout = timedelta(seconds=timeout_seconds)
    store = dist.TCPStore(  # type: ignore[attr-defined]
        address, port, is_master=False, wait_for_workers=False, timeout=timeout
    )
    return dist.PrefixStore(name, store)  # type: ignore[attr-defined]


def join_group(
    meeting_address: str,
    meeting_port: int,
    name: str,
    *,
    rank: int,
    size: int,
    address: str,
    timeout_seconds: float,
    hosts: Sequence[str] | str,
) -> TorchTransport:
    """Meet the others and connect with them, listening at `address`.

    `hosts`: of all ranks, or this rank's own where nobody knows those of the others before. A rank alone meets nobody.
    """
    from minga.comm.torch_dist import TorchTransport

    alone = size == 1
    store = dist.HashStore() if alone else join_meeting(meeting_address, meeting_port, name, timeout_seconds)  # type: ignore[attr-defined]
    if isinstance(hosts, str):
        store.set(f"host/{rank}", hosts)
        hosts = [store.get(f"host/{other}").decode() for other in range(size)]
    return TorchTransport(
        store, rank=rank, size=size, address=address, timeout_seconds=timeout_seconds, hosts=list(hosts)
    )
