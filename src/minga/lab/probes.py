"""How fast and how far: what a link really does, seen from a process on each of its ends.

Goodput is TCP payload, counted where it arrives, without the start of the connection. Delay is the median round trip
of small datagrams, and loss the part of them that never came back, to a partner whose way back is neither delayed nor
lossy: so both are those of one way.
"""

from __future__ import annotations

import contextlib
import select
import socket
import statistics
import time

__all__ = ["echo", "ping", "receive", "send"]

_CHUNK = 1 << 18
_ECHO_END = b"end"
_PATIENCE_SECONDS = 30.0
# Before this part of the measuring time has passed, TCP still finds out how fast the link is.
_START = 0.3


def receive(listener: socket.socket, seconds: float) -> float:
    """Take what one connection brings; bits per second of payload after the start-up."""
    listener.settimeout(_PATIENCE_SECONDS)
    connection, _ = listener.accept()
    buffer = bytearray(_CHUNK)
    began = counted_from = last = 0.0
    count = 0
    with connection:
        connection.settimeout(_PATIENCE_SECONDS)
        while length := connection.recv_into(buffer):
            last = time.perf_counter()
            if not began:
                began = last
            elif not counted_from:
                if last - began >= _START * seconds:
                    # The start-up is over. What has piled up by now, should we have been kept waiting, is not counted.
                    counted_from = _drain(connection, buffer)
            else:
                count += length
            if counted_from and last - began >= seconds:
                break
    if not count:
        return 0.0
    return count * 8 / (last - counted_from)


def _drain(connection: socket.socket, buffer: bytearray) -> float:
    """Take what is there already; the time then."""
    connection.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while connection.recv_into(buffer):
            pass
    connection.settimeout(_PATIENCE_SECONDS)
    return time.perf_counter()


def send(address: str, port: int, seconds: float) -> None:
    """Push bytes for at least that long, or until the other side has seen enough."""
    with socket.create_connection((address, port), timeout=_PATIENCE_SECONDS) as connection:
        chunk = bytes(_CHUNK)
        deadline = time.perf_counter() + seconds * 3 + 1
        with contextlib.suppress(ConnectionError, TimeoutError):
            while time.perf_counter() < deadline:
                connection.send(chunk)


def echo(server: socket.socket) -> None:
    """Send datagrams back until one says that it was the last."""
    server.settimeout(_PATIENCE_SECONDS)
    with contextlib.suppress(TimeoutError):
        while True:
            content, sender = server.recvfrom(2048)
            if content == _ECHO_END:
                return
            server.sendto(content, sender)


def ping(address: str, port: int, count: int, spacing: float, patience: float) -> tuple[float | None, float]:
    """The median round trip in seconds (None: nothing came back) and the part that got lost, of `count` datagrams."""
    left: dict[bytes, float] = {}
    trips: list[float] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect((address, port))
        client.setblocking(False)
        client.send(b"first")  # also asks for the other's hardware address, a round trip of its own
        _collect(client, left, trips, time.perf_counter() + patience, first=True)
        for number in range(count):
            left[b"%d" % number] = time.perf_counter()
            select.select([], [client], [], patience)
            client.send(b"%d" % number)
            _collect(client, left, trips, time.perf_counter() + spacing)
        _collect(client, left, trips, time.perf_counter() + patience)
        with contextlib.suppress(ConnectionRefusedError):  # it has received one of them
            for _ in range(10):  # any of them may get lost
                client.send(_ECHO_END)
    return (statistics.median(trips) if trips else None), len(left) / count


def _collect(
    client: socket.socket, left: dict[bytes, float], trips: list[float], deadline: float, *, first: bool = False
) -> None:
    """Take answers until the deadline, or until nothing more is to come."""
    while (left or first) and (rest := deadline - time.perf_counter()) > 0:
        if not select.select([client], [], [], rest)[0]:
            return
        with contextlib.suppress(OSError):
            answer = client.recv(2048)
            if answer in left:
                trips.append(time.perf_counter() - left.pop(answer))
            elif first:
                return
