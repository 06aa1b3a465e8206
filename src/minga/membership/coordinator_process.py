"""Who runs a coordinator: a process of its own, or a thread of a program.

order = CoordinatorOrder(state="runs/r/coordinator.json", run="r", token=token, rules=Rules(expect=4, min_nodes=2))
Job(name="coordinator", function="minga.membership.coordinator_process:main", helper=True, order=order, log=...)
address, port = wait_for_address(Path("runs/r/coordinator.json"), timeout_seconds=10)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minga.base.config import Config, build
from minga.membership.coordinator import Coordinator, Guests, ListenAddress
from minga.membership.rules import Rules
from minga.net.tls import load_tls

__all__ = ["ABANDONED", "CoordinatorOrder", "coordinating", "main"]

ABANDONED = 75
"""The exit code of a coordinator that everybody has left before the run's end."""


@dataclass(frozen=True, kw_only=True)
class CoordinatorOrder(Config):
    """To a process that is a run's coordinator."""

    kind = "coordinator's order"

    state: Path
    """The file that it goes on from when it is started again."""
    run: str
    token: str | None = field(default=None, repr=False)
    """None: the one in the state file."""
    rules: Rules = field(default_factory=Rules)
    facts: dict[str, str] | None = None
    """What all members must have in common; None: what the first one has."""
    address: str = "127.0.0.1"
    port: int = 0
    tls: str | None = None
    """The directory of this node's certificate."""
    description: str | None = None
    """The experiment for those who ask (TOML); None: nobody else is wanted."""
    own: tuple[int, ...] = (0,)
    """Numbers of nodes that are not for others."""
    events: Path | None = None
    """The folder for what nodes elsewhere hand over at their end."""
    abandoned_seconds: float = float("inf")
    """How long to wait when everybody is gone."""


@contextlib.contextmanager
def coordinating(coordinator: Coordinator) -> Iterator[tuple[str, int]]:
    """A coordinator in a thread of this process, for programs of one's own and for tests; its address and port."""
    failure: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(coordinator.serve())
        except BaseException as error:
            failure.append(error)
        finally:
            coordinator.listening.set()

    thread = threading.Thread(target=run, name="coordinator", daemon=True)
    thread.start()
    coordinator.listening.wait()
    try:
        if failure:
            raise failure[0]
        yield coordinator.address, coordinator.port
    finally:
        coordinator.stop()
        thread.join()


def main(arguments: Mapping[str, Any]) -> int:
    """A process that is the coordinator until the run is over or it is ended; the exit code. See `CoordinatorOrder`."""
    order = build(CoordinatorOrder, arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    guests = None
    if order.description is not None:
        guests = Guests(description=order.description, own=order.own, events=order.events)
    coordinator = Coordinator(
        order.state,
        run=order.run,
        token=order.token,
        rules=order.rules,
        facts=order.facts,
        listen_address=ListenAddress(
            address=order.address, port=order.port, tls=load_tls(order.tls) if order.tls else None
        ),
        guests=guests,
        abandoned_seconds=order.abandoned_seconds,
    )
    signal.signal(signal.SIGTERM, lambda *_: coordinator.stop())
    asyncio.run(coordinator.serve())
    return ABANDONED if coordinator.abandoned else 0


if __name__ == "__main__":
    sys.exit(main(json.load(sys.stdin)))
