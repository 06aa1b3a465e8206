"""JSON between the processes of a lab, one packet each, over sockets that keep packets apart.

    send(channel, {"action": "measure"}); message, descriptor = receive(channel)

A message may bring an open file along.
"""

from __future__ import annotations

import json
import socket
from typing import Any

__all__ = ["pair", "receive", "send"]

_LONGEST = 1 << 18


def pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(channel: socket.socket, message: Any, descriptor: int | None = None) -> None:
    content = json.dumps(message).encode()
    if descriptor is None:
        channel.send(content)
    else:
        socket.send_fds(channel, [content], [descriptor])


def receive(channel: socket.socket) -> tuple[Any, int | None]:
    """A message and the descriptor that came with it. Raises ConnectionError when the other end is closed."""
    content, descriptors, _, _ = socket.recv_fds(channel, _LONGEST, 1)
    if not content:
        raise ConnectionResetError("the other end is closed")
    return json.loads(content), (descriptors[0] if descriptors else None)
