"""Wakes a thread that waits in a poller, from anywhere.

poller.register(bell.descriptor, READ); ...; bell.ring()
"""

from __future__ import annotations

import contextlib
import os

__all__ = ["Waker"]


class Waker:
    """Ringing takes no lock, so that also the handler of a signal may do it in the middle of anything.

    For the same reason nobody closes it: somebody may be about to ring, and the number could be another file's by then.
    The descriptor is given back when nobody can ring any more.
    """

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def ring(self) -> None:
        os.eventfd_write(self.descriptor, 1)

    def silence(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)

    def __del__(self) -> None:
        os.close(self.descriptor)
