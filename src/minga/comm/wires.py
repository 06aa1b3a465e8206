"""Connections between ranks for vectors that everybody sends to everybody while training goes on.

Gloo wakes up a thread for every packet that arrives: on a link of 100 Mbit/s, 8,000 times a second, each time taking
the core from training. Here the kernel wakes nobody before a good part of a message has arrived (SO_RCVLOWAT), and
one thread does it all.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from minga.errors import PeerLost, PeerTimeout

__all__ = ["Wires"]

_TOKEN_BYTES = 16
_GREETING = struct.Struct(f"!{_TOKEN_BYTES}sI")  # the token of the rank that is called, the rank that calls
_LENGTH = struct.Struct("!Q")
# Bytes that have to be there before anybody is woken up; also the end of a message, if that is less.
_ENOUGH = 1 << 18


class Wires:
    """One TCP connection between any two ranks, made when they first exchange something."""

    def __init__(self, store: Any, name: str, *, rank: int, size: int, address: str, timeout_seconds: float) -> None:
        self._store = store
        self._name = name
        self._rank = rank
        self._size = size
        self._address = address
        self._seconds = timeout_seconds
        self._sockets: dict[int, socket.socket] = {}
        self._listener: socket.socket | None = None
        self._token = secrets.token_bytes(_TOKEN_BYTES)

    def exchange(self, buffers: Sequence[Tensor], ranks: Sequence[int]) -> None:
        """Send the buffer in this rank's place to the other `ranks`, and receive theirs into their places."""
        self._connect(set(ranks) - {self._rank})
        own = _bytes(buffers[list(ranks).index(self._rank)])
        wires = [
            _Wire(rank, self._sockets[rank], own, _bytes(buffer))
            for rank, buffer in zip(ranks, buffers, strict=True)
            if rank != self._rank
        ]
        with selectors.DefaultSelector() as selector:
            for wire in wires:
                wire.register(selector)
            while selector.get_map():
                ready = selector.select(self._seconds)
                if not ready:
                    missing = sorted(wire.rank for wire in wires if not wire.done)
                    raise PeerTimeout(
                        f"rank {self._rank} exchanged nothing with rank {', '.join(map(str, missing))} within "
                        f"{self._seconds:g} s: slow, stopped, or not at the same point of the program. "
                        "If it is only slow, raise cluster.timeout_seconds"
                    )
                for key, _ in ready:
                    self._advance(key.data, selector)

    def _advance(self, wire: _Wire, selector: selectors.BaseSelector) -> None:
        try:
            wire.advance(selector)
        except (ConnectionError, TimeoutError) as error:
            raise PeerLost(f"rank {self._rank}: the connection to rank {wire.rank} is gone ({error})") from error

    def close(self) -> None:
        for connection in self._sockets.values():
            connection.close()
        self._sockets.clear()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _connect(self, others: set[int]) -> None:
        """Each rank listens for those after it and calls those before it; who calls must know the rank's token."""
        if others <= set(self._sockets):
            return
        listener = self._listen()
        for other in sorted(others - set(self._sockets)):
            if other < self._rank:
                self._add(other, self._call(other))
        deadline = time.monotonic() + self._seconds
        while missing := sorted(others - set(self._sockets)):
            listener.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                connection, _ = listener.accept()
            except TimeoutError as error:
                raise PeerTimeout(
                    f"rank {self._rank}: rank {', '.join(map(str, missing))} did not connect within {self._seconds:g} s"
                ) from error
            caller = _greeted(connection, self._token)
            if caller is None or caller in self._sockets or not self._rank < caller < self._size:
                connection.close()
            else:
                self._add(caller, connection)

    def _listen(self) -> socket.socket:
        if self._listener is None:
            self._listener = socket.create_server((self._address, 0), backlog=self._size)
            port = self._listener.getsockname()[1]
            self._store.set(self._key(self._rank), f"{self._address} {port} {self._token.hex()}")
        return self._listener

    def _key(self, rank: int) -> str:
        return f"wires/{self._name}/{rank}"

    def _add(self, other: int, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        self._sockets[other] = connection

    def _call(self, other: int) -> socket.socket:
        try:
            address, port, token = self._store.get(self._key(other)).decode().split()
        except RuntimeError as error:
            raise PeerTimeout(f"rank {self._rank} waits for rank {other}, which is not there: {error}") from error
        try:
            connection = socket.create_connection((address, int(port)), timeout=self._seconds)
        except OSError as error:
            raise PeerLost(f"rank {self._rank} could not connect to rank {other} at {address}: {error}") from error
        connection.sendall(_GREETING.pack(bytes.fromhex(token), self._rank))
        return connection


def _greeted(connection: socket.socket, token: bytes) -> int | None:
    """Who calls, if it knows the token."""
    connection.settimeout(5.0)
    with contextlib.suppress(OSError):
        greeting = connection.recv(_GREETING.size, socket.MSG_WAITALL)
        if len(greeting) == _GREETING.size:
            said, caller = _GREETING.unpack(greeting)
            if hmac.compare_digest(said, token):
                return int(caller)
    return None


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().view(torch.uint8).numpy().data if tensor.numel() else memoryview(b"")


@dataclass
class _Wire:
    """What is still to be sent to a rank and to be received from it, in one exchange."""

    rank: int
    connection: socket.socket
    outgoing: memoryview
    incoming: memoryview

    def __post_init__(self) -> None:
        self._expected = len(self.incoming)
        self._head_out = memoryview(_LENGTH.pack(len(self.outgoing)))
        self._head_in = memoryview(bytearray(_LENGTH.size))
        self._sending = [self._head_out, self.outgoing]
        self._receiving = [self._head_in, self.incoming]
        self._patience = 0
        """The SO_RCVLOWAT that is set."""

    @property
    def done(self) -> bool:
        return not self._left(self._sending) and not self._left(self._receiving)

    @staticmethod
    def _left(parts: list[memoryview]) -> int:
        return sum(len(part) for part in parts)

    def register(self, selector: selectors.BaseSelector) -> None:
        self._be_patient()
        selector.register(self.connection, selectors.EVENT_READ | selectors.EVENT_WRITE, self)

    def advance(self, selector: selectors.BaseSelector) -> None:
        """Send and receive what is possible now."""
        with contextlib.suppress(BlockingIOError):
            while self._left(self._sending):
                sent = self.connection.sendmsg([part for part in self._sending if len(part)])
                self._sending = _after(self._sending, sent)
        with contextlib.suppress(BlockingIOError):
            while self._left(self._receiving):
                # A message's head and body come together, so one call is enough for what is there.
                received = self.connection.recvmsg_into([part for part in self._receiving if len(part)])[0]
                if not received:
                    raise ConnectionResetError("it was closed at the other end")
                self._receiving = _after(self._receiving, received)
                self._check_length()
        self._be_patient()
        events = selectors.EVENT_WRITE if self._left(self._sending) else 0
        events |= selectors.EVENT_READ if self._left(self._receiving) else 0
        if events:
            selector.modify(self.connection, events, self)
        else:
            selector.unregister(self.connection)

    def _check_length(self) -> None:
        if not len(self._receiving[0]):
            told = _LENGTH.unpack(self._head_in)[0]
            if told != self._expected:
                raise PeerLost(f"rank {self.rank} sent {told} bytes where {self._expected} were expected")

    def _be_patient(self) -> None:
        patience = max(1, min(_ENOUGH, self._left(self._receiving)))
        if patience != self._patience:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, patience)
            self._patience = patience


def _after(parts: list[memoryview], done: int) -> list[memoryview]:
    """The parts without the first `done` bytes; a part that is done stays, empty."""
    rest = []
    for part in parts:
        taken = min(done, len(part))
        rest.append(part[taken:])
        done -= taken
    return rest
