"""Where others connect to a process for data: one listener for its lifetime, whatever generations come and go.

    with DataListener("127.0.0.1") as listener:
        print(listener.port)  # for the others

Nobody gets in who does not know the secret of the generation that it claims to be in. A quicker peer may come for a
generation that this process has not heard of yet: it waits. All greetings go on side by side in one thread.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from minga.errors import Refused
from minga.net.greeting import Opening
from minga.net.listener import Key, Listener
from minga.net.loop_thread import LoopThread
from minga.net.sockets import Socket, listen
from minga.net.tls import Tls

__all__ = ["Claim", "DataListener"]

_GREETING_SECONDS = 2.0
_CLAIM = struct.Struct("!QIII")


class Claim(NamedTuple):
    """Who wants to talk to whom."""

    generation: int
    caller: int
    called: int
    endpoint: int

    def pack(self) -> bytes:
        return _CLAIM.pack(*self)

    @classmethod
    def unpack(cls, content: bytes) -> Claim:
        if len(content) != _CLAIM.size:
            raise Refused("this is a rank's port for data; look at the port")
        return cls(*_CLAIM.unpack(content))


Accept = Callable[[Claim, Socket, bytes], None]
"""Takes over a connection whose other side is what it claims; the bytes are to be sent first. Or raises `Refused`."""


class DataListener:
    """Listens at once, at a port that the kernel chooses, and greets in a thread of its own."""

    def __init__(self, address: str = "127.0.0.1", tls: Tls | None = None) -> None:
        listening = listen(address, 0)
        self.address = address
        self.port = int(listening.getsockname()[1])
        self.tls = tls
        self.listener = Listener(
            listening,
            context=tls.server if tls is not None else None,
            seconds=_GREETING_SECONDS,
            look_up=self._look_up,
            welcome=self._welcome,
        )
        self._lock = threading.Lock()
        self._expected: dict[tuple[int, int], tuple[bytes, Accept]] = {}
        self._over: set[tuple[int, int]] = set()
        self._latest = -1
        self._thread = LoopThread(f"minga-listener-{self.port}")
        self._thread.begin(self.listener.serve)

    def __enter__(self) -> DataListener:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def expect(self, generation: int, rank: int, secret: bytes, accept: Accept) -> None:
        """Let those in who want `rank` of this generation; `accept` is called in the listener's thread."""
        with self._lock:
            if generation > self._latest:
                self._latest = generation
                self._over.clear()
            self._expected[generation, rank] = (secret, accept)
        self._thread.do(self.listener.reconsider)

    def forget(self, generation: int, rank: int) -> None:
        """Let nobody in for this rank any more."""
        with self._lock:
            if self._expected.pop((generation, rank), None) is not None:
                self._over.add((generation, rank))

    def close(self) -> None:
        self._thread.close()

    def _find(self, claim: Claim) -> tuple[bytes, Accept] | None:
        key = (claim.generation, claim.called)
        with self._lock:
            if claim.generation < self._latest or key in self._over:
                raise Refused("this generation is over here")
            return self._expected.get(key)

    def _look_up(self, opening: Opening) -> Key | None:
        expected = self._find(Claim.unpack(opening.claim))
        return None if expected is None else Key(expected[0], wrong="it knows another secret than this generation's")

    async def _welcome(self, socket: Socket, opening: Opening, first: bytes) -> None:
        claim = Claim.unpack(opening.claim)
        expected = self._find(claim)
        assert expected is not None, "it is over, or it is still what it was looked up for"
        expected[1](claim, socket, first)
