"""The processes of a lab, which the daemon forks, and JSON between them: one packet each, so that none need be cut.

    pid = fork(lambda: serve(theirs)); end(pid)
    send(channel, {"action": "measure"}); message, descriptor = receive(channel)

A message may bring an open file along.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

from minga.lab.namespaces import die_with_parent

__all__ = ["end", "fork", "pair", "receive", "send"]

_LONGEST = 1 << 18


def fork(work: Callable[[], object]) -> int:
    """A process that does this and ends, at the latest with the daemon; its id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        work()
    except BaseException:
        with contextlib.suppress(OSError):  # nobody may be left to read it
            traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(0)


def end(pid: int) -> None:
    """At once; also one that has ended already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


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
