"""The process that holds a lab: it makes the hosts, joins them, measures links, and takes all of it down again.

    python -m minga.lab.keeper NAME DESCRIPTOR       # started by `Lab`, which talks to it through the descriptor

The lab lives exactly as long as its owner's end of that channel is open: when the owner is done, fails or is killed,
the keeper hears of it and removes everything. Should the keeper itself be killed, the kernel ends the agents and the
relay with it, and network namespaces without processes vanish by themselves.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from minga.config import build
from minga.lab import registry
from minga.lab.agent import AgentError
from minga.lab.build import Building
from minga.lab.namespaces import NETWORK, USER, unshare
from minga.network import Link, Network

__all__ = ["main"]

_LONGEST = 1 << 16


def main() -> None:
    name, descriptor = sys.argv[1], int(sys.argv[2])
    owner = socket.socket(fileno=descriptor)
    # Ctrl-C is the owner's business, and a request to end is obeyed in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    keeper = Keeper(name)
    try:
        keeper.serve(owner)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        keeper.close()


class Keeper:
    """Obeys the owner, and others of the same user, until the owner is gone."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._building: Building | None = None
        self._listener: socket.socket | None = None

    def serve(self, owner: socket.socket) -> None:
        while True:
            watched: list[socket.socket] = [owner] + ([self._listener] if self._listener else [])
            ready, _, _ = select.select(watched, [], [])
            if owner in ready:
                content = owner.recv(_LONGEST)
                if not content:
                    return
                owner.send(self._handle(content))
            elif self._listener is not None and self._listener in ready:
                guest, _ = self._listener.accept()
                with guest, contextlib.suppress(OSError):
                    guest.settimeout(5)
                    guest.send(self._handle(guest.recv(_LONGEST)))

    def _handle(self, content: bytes) -> bytes:
        try:
            order = json.loads(content)
            answer = self._obey(order.pop("action"), order)
            return json.dumps({"answer": answer}).encode()
        except Exception as error:
            if not isinstance(error, AgentError | OSError):
                traceback.print_exc()
            return json.dumps({"error": str(error) or type(error).__name__, "kind": type(error).__name__}).encode()

    def _obey(self, action: str, details: Mapping[str, Any]) -> Any:
        match action:
            case "build":
                return self._build(details)
            case "measure":
                assert self._building is not None
                return self._building.measure()
            case "change":
                assert self._building is not None
                return self._building.change(details["host"], build(Link, details["link"]))
        raise ValueError(f"a lab can't {action}")

    def _build(self, details: Mapping[str, Any]) -> Any:
        rootless = bool(details["rootless"])
        if rootless:
            _become_root_of_own()
        self._building = Building(self._name, build(Network, details["network"]), rootless=rootless)
        self._building.build(int(details["hosts"]), details["cpu"], pin=bool(details["pin"]))
        path = registry.socket_of(self._name)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        self._listener.listen(8)
        started = registry.started_at(os.getpid())
        registry.register(
            registry.Record(
                name=self._name,
                keeper=os.getpid(),
                keeper_started=started or 0.0,
                owner=int(details["owner"]),
                hosts=self._building.hosts,
            )
        )
        return {
            "hosts": self._building.hosts,
            "switch": self._building.switch_place,
            "emulation": self._building.emulation,
        }

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        if self._building is not None:
            self._building.close()
        registry.forget(self._name)


def _become_root_of_own() -> None:
    """A user namespace in which this user is root, so that networks may be made in it."""
    user, group = os.getuid(), os.getgid()
    unshare(USER | NETWORK)
    for name, content in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123  (nothing to resolve)
            file.write(content)


if __name__ == "__main__":
    main()
