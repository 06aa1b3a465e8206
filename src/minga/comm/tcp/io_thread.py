"""The one thread of a transport: it calls other ranks, notices who is gone, and goes on with what nobody waits for.

It sleeps as long as ranks wait themselves for what they exchange, which is nearly always.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select

from minga.comm.tcp.endpoint import Endpoint
from minga.comm.tcp.listener import Claim
from minga.errors import PeerLost, PeerTimeout, ProtocolError, Refused
from minga.net.generation import Generation
from minga.net.greeting import introduce
from minga.net.loop_thread import LoopThread
from minga.net.sockets import READ, Socket, connect
from minga.net.tls import Tls

__all__ = ["IOThread"]

_log = logging.getLogger("minga.comm.tcp")

# A listener that hangs up may have too many visitors: call again, at first soon.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5


class IOThread(LoopThread):
    """Looks after the endpoints of one rank."""

    def __init__(self, generation: Generation, rank: int, tls: Tls | None, seconds: float) -> None:
        super().__init__(f"minga-tcp-{rank}")
        self._generation = generation
        self._rank = rank
        self._context = tls.client if tls is not None else None
        self._seconds = seconds
        self._endpoints: dict[int, Endpoint] = {}
        self._endings: dict[int, tuple[Endpoint, int]] = {}
        """Connections whose end is to be noticed even if nobody waits for their rank, by descriptor."""
        # Other threads change what this one watches without waking the loop.
        self._poller = select.epoll()
        self.watch(self._poller.fileno(), self._serve)

    def add(self, endpoint: Endpoint) -> None:
        self._endpoints[endpoint.descriptor] = endpoint
        self._poller.register(endpoint.descriptor, 0)

    def watch_endpoint(self, endpoint: Endpoint, wanted: bool) -> None:
        """Go on with what happens in an endpoint while nobody waits there, or leave that to who does."""
        with contextlib.suppress(OSError, ValueError):  # closed meanwhile
            self._poller.modify(endpoint.descriptor, READ if wanted else 0)

    def call(self, endpoint: Endpoint, rank: int) -> None:
        """Somebody wants to talk to `rank`. Of two ranks the higher one calls."""
        if rank < self._rank:
            self.begin(lambda: self._call(endpoint, rank))

    def gone(self, endpoint: Endpoint, rank: int, error: PeerLost, alarming: bool) -> None:
        """The connection to `rank` has ended: where it has not connected yet, it never will."""
        if endpoint.number == 0:
            self.do(self._lose_everywhere, rank, error, alarming)

    def attached(self, endpoint: Endpoint, rank: int) -> None:
        """The first connection to a rank shows when its process ends."""
        if endpoint.number == 0:
            self.do(self._notice_end, endpoint, rank)

    def close(self) -> None:
        super().close()
        self._poller.close()

    # In the thread

    def _serve(self) -> None:
        for descriptor, _ in self._poller.poll(0):
            if descriptor in self._endpoints:
                self._endpoints[descriptor].attend()
            elif descriptor in self._endings:
                endpoint, rank = self._endings.pop(descriptor)
                endpoint.look_at(rank)

    def _lose_everywhere(self, rank: int, error: PeerLost, alarming: bool) -> None:
        for endpoint in list(self._endpoints.values()):
            endpoint.lose(rank, error, alarming=alarming)

    def _notice_end(self, endpoint: Endpoint, rank: int) -> None:
        descriptor = endpoint.descriptor_of(rank)
        if descriptor is not None:
            self._endings[descriptor] = (endpoint, rank)
            with contextlib.suppress(OSError):
                self._poller.register(descriptor, select.EPOLLRDHUP | select.EPOLLONESHOT)

    async def _call(self, endpoint: Endpoint, rank: int) -> None:
        why: tuple[type[PeerLost], str]
        try:
            async with asyncio.timeout(self._seconds):
                connection = await self._connect(endpoint.number, rank)
            if not endpoint.attach(rank, connection):
                connection.close()
            return
        except TimeoutError:
            why = PeerTimeout, f"did not answer within {self._seconds:g} s"
        except (Refused, ProtocolError) as error:
            why = PeerLost, f"would not talk: {error}"
        except OSError as error:  # nobody listens there any more, or the certificates don't fit
            address = self._generation.members[rank].address
            why = PeerLost, f"can't be reached at {address}: {error.strerror or error}"
        _log.warning("rank %d: rank %d %s", self._rank, rank, why[1])
        endpoint.lose(rank, why[0](f"rank {self._rank}: rank {rank} {why[1]}"), alarming=True)

    async def _connect(self, endpoint: int, rank: int) -> Socket:
        """A connection to `rank`, which knows who it is for; again and again while it is dropped."""
        member, pause = self._generation.members[rank], _FIRST_PAUSE
        claim = Claim(self._generation.number, self._rank, rank, endpoint)
        while True:
            connection: Socket | None = None
            try:
                connection = await connect(member.address, member.port, self._context)
                await introduce(connection, bytes.fromhex(self._generation.secret), claim=claim.pack())
                return connection
            except BaseException as error:
                if connection is not None:
                    connection.close()
                if not isinstance(error, ConnectionResetError):
                    raise
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE, 2 * pause)
