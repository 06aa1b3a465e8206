"""Who runs a coordinator: a process of its own, or a thread of a program.

Job(name="coordinator", function="minga.membership.coordinator_process:main", helper=True, arguments={
    "state": "runs/r/coordinator.json", "run": "r", "token": token, "rules": {"expect": 4, "min_nodes": 2}})
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
from pathlib import Path
from typing import Any

from minga.base.config import build
from minga.membership.coordinator import Coordinator, Guests, ListenAddress
from minga.membership.rules import Rules
from minga.net.tls import load_tls

__all__ = ["ABANDONED", "coordinating", "main"]

ABANDONED = 75
"""The exit code of a coordinator that everybody has left before the run's end."""


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
    """A process that is the coordinator until the run is over or it is ended; the exit code.

    `arguments`: state (file), run, token, rules, facts, address, port, tls (directory of a node), description (TOML),
    own, events (folder), abandoned_seconds; all but the first two have defaults.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    tls = load_tls(arguments["tls"]) if arguments.get("tls") else None
    guests = None
    if arguments.get("description") is not None:
        events = Path(arguments["events"]) if arguments.get("events") else None
        guests = Guests(description=arguments["description"], own=arguments.get("own", (0,)), events=events)
    coordinator = Coordinator(
        Path(arguments["state"]),
        run=arguments["run"],
        token=arguments.get("token"),
        rules=build(Rules, arguments.get("rules", {})),
        facts=arguments.get("facts"),
        listen_address=ListenAddress(
            address=arguments.get("address", "127.0.0.1"), port=arguments.get("port", 0), tls=tls
        ),
        guests=guests,
        abandoned_seconds=arguments.get("abandoned_seconds", float("inf")),
    )
    signal.signal(signal.SIGTERM, lambda *_: coordinator.stop())
    asyncio.run(coordinator.serve())
    return ABANDONED if coordinator.abandoned else 0


if __name__ == "__main__":
    sys.exit(main(json.load(sys.stdin)))
