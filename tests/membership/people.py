"""Members for tests: their descriptions, and ports for data that are plain listening sockets."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from minga.membership.coordinator import Coordinator, CoordinatorOrder
from minga.membership.member import Member
from minga.membership.protocol import CoordinatorAddress
from minga.membership.rules import Rules
from minga.net.generation import Generation, MemberInfo, new_incarnation
from minga.net.tls import load_tls

TOKEN = "0123456789abcdef" * 4
RUN = "test-run"


def info(id: str, incarnation: str = "", **fields: Any) -> MemberInfo:
    return MemberInfo(
        id=id, incarnation=incarnation or new_incarnation(), **{"address": "127.0.0.1", "port": 1, **fields}
    )


def quick(expect: int, **fields: Any) -> Rules:
    """Rules with short times: tests should be quick."""
    times = {"heartbeat_seconds": 0.1, "heartbeat_timeout_seconds": 0.8, "join_interval_seconds": 0.3}
    return Rules(expect=expect, **{**times, **fields})


def make_coordinator(directory: Path, expect: int, **fields: Any) -> Coordinator:
    given: dict[str, Any] = {"run": RUN, "token": TOKEN, "rules": quick(expect), **fields}
    return Coordinator(CoordinatorOrder(state=directory / "coordinator.json", **given))


def at(where: tuple[str, int], *, tls: str | None = None, **options: Any) -> CoordinatorAddress:
    """`tls`: the directory of a node's certificate."""
    known = load_tls(tls) if tls is not None else None
    return CoordinatorAddress(address=where[0], port=where[1], tls=known, **{"token": TOKEN, **options})


@contextlib.contextmanager
def data_port(address: str = "127.0.0.1") -> Iterator[int]:
    with socket.create_server((address, 0)) as listener:
        yield int(listener.getsockname()[1])


@contextlib.contextmanager
def members(address: str, port: int, ids: Sequence[str], **options: Any) -> Iterator[list[Member]]:
    """Members that have not joined yet; closed at the end."""
    with contextlib.ExitStack() as stack:
        made = []
        for id in ids:
            where = at((address, port), **options)
            member = Member(where, info(id, port=stack.enter_context(data_port())))
            stack.callback(member.close)
            made.append(member)
        yield made


def join_all(joining: Sequence[Member], timeout_seconds: float = 5) -> list[Generation]:
    """Join at the same time, and say that the generation is formed."""
    threads = [threading.Thread(target=_try_to_join, args=(member, timeout_seconds)) for member in joining]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    generations = [member.wait_for_generation(0, timeout_seconds) for member in joining]
    form_all(joining)
    return generations


def _try_to_join(member: Member, timeout_seconds: float) -> None:
    with contextlib.suppress(Exception):  # who waits for the generation raises it
        member.join(timeout_seconds)


def form_all(forming: Sequence[Member]) -> None:
    for member in forming:
        assert member.generation is not None
        member.formed(member.generation.number)


def until(condition: Callable[[], Any], timeout_seconds: float = 5) -> float:
    """Wait for a condition; the seconds it took."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() < begin + timeout_seconds, "it did not happen in time"
        time.sleep(0.005)
    return time.monotonic() - begin
