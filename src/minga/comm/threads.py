"""Ranks as threads of one process: the transport for unit tests and for trying a strategy in a notebook.

    run_threads(4, lambda comm: ring(comm, torch.ones(10)))

It keeps the strict rules of the real transports: a send finishes only when it is received (so a program that
would hang over gloo hangs here too, until the deadline), and a rank that fails fails its peers.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from minga.comm.background import RealTimeTransport
from minga.comm.collectives.direct import direct
from minga.comm.transport import Done, Pending, Transport
from minga.errors import PeerLost, PeerTimeout

__all__ = ["ThreadTransport", "ThreadWorld", "run_ranks", "run_threads"]

Result = TypeVar("Result")

# Messages of `start` jobs live above this tag, so that they never meet the caller's.
_BACKGROUND = 1 << 20
_ALL_REDUCE = (1 << 20) - 1


class ThreadWorld:
    """The messages of a group of threads that wait for their other side."""

    def __init__(self, size: int, *, timeout_seconds: float = 30.0, hosts: Sequence[str] | None = None) -> None:
        self.size = size
        self.timeout_seconds = timeout_seconds
        self.hosts = list(hosts) if hosts is not None else ["localhost"] * size
        self.lock = threading.Condition()
        self.lost: dict[int, str] = {}
        self._waiting: dict[tuple[int, int], list[_Message]] = defaultdict(list)
        """By receiver and tag: sends and receives whose other side is not there yet."""

    def transport(self, rank: int) -> ThreadTransport:
        return ThreadTransport(self, rank)

    def fail(self, rank: int, why: str) -> None:
        """Rank `rank` is gone: whoever waits for it fails."""
        with self.lock:
            self.lost[rank] = why
            self.lock.notify_all()

    def withdraw(self, message: _Message) -> None:
        with self.lock:
            if message in self._waiting[message.place]:
                self._waiting[message.place].remove(message)

    def post(self, message: _Message) -> _Message:
        """Deliver it if its other side is there, otherwise it waits."""
        with self.lock:
            waiting = self._waiting[message.place]
            for other in waiting:
                sent, received = (message, other) if message.sends else (other, message)
                if sent.sends and not received.sends and received.peer in (None, sent.owner):
                    waiting.remove(other)
                    _deliver(sent, received)
                    self.lock.notify_all()
                    return message
            waiting.append(message)
            return message


@dataclass(eq=False)
class _Message(Pending):
    """One side of a message: a send or a receive that waits for its other side."""

    world: ThreadWorld
    owner: int
    peer: int | None
    tensor: Tensor
    place: tuple[int, int]
    sends: bool
    source: int | None = None
    error: str | None = None

    def wait(self, patience: float = 1.0) -> int:
        world = self.world
        seconds = world.timeout_seconds * patience
        whom = "any rank" if self.peer is None else f"rank {self.peer}"
        what = f"{'send to' if self.sends else 'receive from'} {whom}"
        with world.lock:
            world.lock.wait_for(lambda: self._ended() or self._peer_lost(), timeout=seconds)
            if self.error is not None:
                raise PeerLost(self.error)
            if self.source is not None:
                return self.source
            if self._peer_lost():
                gone = [self.peer] if self.peer is not None else sorted(world.lost)
                reasons = "; ".join(f"rank {rank}: {world.lost[rank]}" for rank in gone)
                raise PeerLost(f"rank {self.owner} can't {what}, which is gone ({reasons})")
        raise PeerTimeout(
            f"rank {self.owner} waited {seconds:g} s to {what}, in vain: "
            f"{whom} is slow, stopped, or not at the same point of the program"
        )

    def cancel(self) -> None:
        self.world.withdraw(self)

    def _ended(self) -> bool:
        return self.source is not None or self.error is not None

    def _peer_lost(self) -> bool:
        return bool(self.world.lost) if self.peer is None else self.peer in self.world.lost


def _deliver(sent: _Message, received: _Message) -> None:
    if sent.tensor.shape != received.tensor.shape or sent.tensor.dtype != received.tensor.dtype:
        error = (
            f"rank {sent.owner} sent {tuple(sent.tensor.shape)} {sent.tensor.dtype}, but "
            f"rank {received.owner} expected {tuple(received.tensor.shape)} {received.tensor.dtype}"
        )
        sent.error = received.error = error
        return
    received.tensor.copy_(sent.tensor)
    sent.source = received.source = sent.owner


class ThreadTransport(RealTimeTransport):
    """One rank of a `ThreadWorld`."""

    def __init__(self, world: ThreadWorld, rank: int) -> None:
        super().__init__(rank, world.size, world.hosts, world.timeout_seconds)
        self.world = world

    def beside(self) -> ThreadTransport:
        return self._above(_BACKGROUND)

    def isend(self, tensor: Tensor, to: int, tag: int = 0) -> Pending:
        place = (to, tag + self._offset)
        return self.world.post(_Message(self.world, self.rank, to, tensor.detach(), place, sends=True))

    def ireceive(self, tensor: Tensor, source: int | None, tag: int = 0) -> Pending:
        place = (self.rank, tag + self._offset)
        return self.world.post(_Message(self.world, self.rank, source, tensor.detach(), place, sends=False))

    def all_reduce(self, tensor: Tensor, ranks: Sequence[int] | None = None) -> Pending:
        direct(self._above(_ALL_REDUCE).group(self.members(ranks)), tensor)
        return Done(self.rank)


def run_threads(
    size: int,
    function: Callable[[Transport], Result],
    *,
    timeout_seconds: float = 30.0,
    hosts: Sequence[str] | None = None,
) -> list[Result]:
    """Run `function(comm)` on `size` ranks, each a thread; their results, or the error that came first."""
    world = ThreadWorld(size, timeout_seconds=timeout_seconds, hosts=hosts)
    return run_ranks(size, world.transport, function, when_failed=world.fail)


def run_ranks(
    size: int,
    connect: Callable[[int], Transport],
    function: Callable[[Transport], Result],
    *,
    when_failed: Callable[[int, str], None] = lambda rank, why: None,
) -> list[Result]:
    """Run `function(connect(rank))` for each rank in a thread of its own."""
    results: dict[int, Result] = {}
    errors: list[BaseException] = []

    def body(rank: int) -> None:
        transport: Transport | None = None
        try:
            transport = connect(rank)
            results[rank] = function(transport)
        except BaseException as error:
            errors.append(error)
            when_failed(rank, f"{type(error).__name__}: {error}")
        finally:
            if transport is not None:
                transport.close()

    threads = [threading.Thread(target=body, args=(rank,), name=f"rank-{rank}") for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        # A lost peer is a consequence; the rank that failed by itself is the cause.
        raise next((error for error in errors if not isinstance(error, PeerLost)), errors[0])
    return [results[rank] for rank in range(size)]
