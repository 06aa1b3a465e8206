"""What one rank has sent: payload only, without the headers of TCP and below."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Traffic"]


@dataclass
class Traffic:
    """Bytes and messages so far."""

    bytes: int = 0
    messages: int = 0
    received: int = 0
    """Messages that have come, and collectives of the backend's own that are done."""

    _counting: bool = True

    def count(self, nbytes: int, messages: int = 1, *, always: bool = False) -> None:
        if self._counting or always:
            self.bytes += nbytes
            self.messages += messages

    def count_received(self, *, always: bool = False) -> None:
        if self._counting or always:
            self.received += 1

    def reset(self) -> None:
        self.bytes = self.messages = self.received = 0

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Don't count what is sent meanwhile, such as the sums of an evaluation."""
        self._counting = False
        try:
            yield
        finally:
            self._counting = True
