"""Members of a generation to try TCP with: several in this process, or one in a child that can be killed."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

import pytest

from minga.comm.tcp import DataListener, TcpTransport
from minga.comm.tcp.listener import Claim
from minga.errors import PeerLost
from minga.net.generation import Generation, MemberInfo
from minga.net.greeting import introduce
from minga.net.sockets import Socket
from minga.net.tls import Tls
from minga.testing import generation_of


@contextlib.contextmanager
def members(size: int = 2, *, timeout_seconds: float = 20.0, tls: Tls | None = None) -> Iterator[list[TcpTransport]]:
    """All ranks of a generation in this process, connected."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(DataListener(tls=tls)) for _ in range(size)]
        generation = generation_of(listeners)
        comms = [TcpTransport(generation, rank, listener, timeout_seconds) for rank, listener in enumerate(listeners)]
        try:
            for comm in comms:
                comm.wait_until_connected()
            yield comms
        finally:
            for comm in comms:
                comm.abort("the test is over")
                comm.close()


@contextlib.contextmanager
def beside_child(
    body: Callable[[TcpTransport], None], *, timeout_seconds: float = 20.0
) -> Iterator[tuple[TcpTransport, int]]:
    """This process as rank 0, and a child as rank 1 that runs `body`; the transport and the child's process id."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_child, args=(theirs, body), daemon=True)
    child.start()  # before there is any socket here that it would hold open too
    assert child.pid is not None
    try:
        with DataListener() as listener:
            port = ours.recv()
            infos = [(listener.address, listener.port), ("127.0.0.1", port)]
            generation = Generation(
                number=1,
                members=tuple(
                    MemberInfo(id=f"node-{rank}", incarnation="00000000", address=address, port=port)
                    for rank, (address, port) in enumerate(infos)
                ),
                secret=os.urandom(32).hex(),
            )
            ours.send(generation)
            comm = TcpTransport(generation, 0, listener, timeout_seconds)
            try:
                comm.wait_until_connected()
                yield comm, child.pid
            finally:
                comm.abort("the test is over")
                comm.close()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)
        child.join(5)
        child.close()


def _child(pipe: Connection, body: Callable[[TcpTransport], None]) -> None:
    listener = DataListener()
    pipe.send(listener.port)
    comm = TcpTransport(pipe.recv(), 1, listener)
    comm.wait_until_connected()
    body(comm)
    time.sleep(60)


def seconds_to_fail(action: Callable[[], object], match: str) -> float:
    """When the action raised `PeerLost`, on the monotonic clock."""
    with pytest.raises(PeerLost, match=match):
        action()
    return time.monotonic()


def call_in(
    listener: DataListener, generation: Generation, *, caller: int = 1, called: int = 0, endpoint: int = 0
) -> Socket:
    """A greeting made by hand: the connection of a peer that knows the secret and may say anything."""
    connection = Socket(socket.create_connection((listener.address, listener.port)))
    claim = Claim(generation.number, caller, called, endpoint)
    try:
        asyncio.run(asyncio.wait_for(introduce(connection, bytes.fromhex(generation.secret), claim=claim.pack()), 5))
    except BaseException:
        connection.close()
        raise
    return connection
