"""The process that holds a lab: it makes the hosts, joins them, measures links, and takes all of it down again.

    python -m minga.lab.daemon NAME DESCRIPTOR       # started by `Lab`, which talks to it through the descriptor

The lab lives exactly as long as its owner, or as the owner's end of that channel is open: when the owner is done, fails
or is killed, the daemon notices and removes everything. Should the daemon itself be killed, the kernel ends the
agents and the relay with it, and network namespaces without processes vanish by themselves.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from minga.base.config import build
from minga.errors import ConfigError
from minga.lab import channel, registry
from minga.lab.agent import AgentError
from minga.lab.build import Building
from minga.lab.namespaces import NETWORK, USER, unshare
from minga.runs.network import Link, LinkOverride, Network

__all__ = ["main"]


def main() -> None:
    name, descriptor = sys.argv[1], int(sys.argv[2])
    owner = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's business
    signal.signal(signal.SIGTERM, _leave)
    daemon = LabDaemon(name)
    try:
        try:
            daemon.serve(owner)
        finally:  # a second one around it: the signal may come just here
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
    finally:
        daemon.close()


def _leave(*_: object) -> None:
    """A request to end is obeyed in order, and once."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


class LabDaemon:
    """Obeys the owner, and others of the same user, until the owner is gone."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._building: Building | None = None
        self._listener: socket.socket | None = None

    def serve(self, owner: socket.socket) -> None:
        # A child that the owner forks has the channel's end too, so its closing alone does not show the owner's end.
        lives = os.pidfd_open(os.getppid())
        while True:
            watched: list[Any] = [lives, owner] + ([self._listener] if self._listener else [])
            ready, _, _ = select.select(watched, [], [])
            if lives in ready:
                return
            if owner in ready:
                try:
                    order, _ = channel.receive(owner)
                except ConnectionError:
                    return
                channel.send(owner, self._handle(order))
            elif self._listener is not None and self._listener in ready:
                guest, _ = self._listener.accept()
                with guest, contextlib.suppress(OSError):
                    guest.settimeout(5)
                    order, _ = channel.receive(guest)
                    channel.send(guest, self._handle(order))

    def _handle(self, order: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"answer": self._obey(order.pop("action"), order)}
        except Exception as error:
            if not isinstance(error, AgentError | ConfigError | OSError):
                traceback.print_exc()
            return {"error": str(error) or type(error).__name__, "usage": isinstance(error, ConfigError)}

    def _obey(self, action: str, details: Mapping[str, Any]) -> Any:
        if action == "build":
            return self._build(details)
        building = self._building
        assert building is not None
        match action:
            case "measure":
                return building.measure()
            case "change":
                return building.change(details["host"], build(Link, details["link"]))
            case "adjust":
                return building.adjust(details["host"], build(LinkOverride, details["override"]))
            case "cut":
                return building.cut(details["hosts"], loud=bool(details["loud"]))
            case "mend":
                return building.mend(details["hosts"])
        raise ConfigError(f"a lab can't {action}")

    def _build(self, details: Mapping[str, Any]) -> Any:
        rootless = bool(details["rootless"])
        if rootless:
            _become_root_of_own()
        building = self._building = Building(self._name, build(Network, details["network"]), rootless=rootless)
        building.build(int(details["hosts"]), details["cpu"], pin=bool(details["pin"]))
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(registry.socket_of(self._name)))
        self._listener.listen(8)
        registry.register(
            registry.Record(
                name=self._name,
                daemon=os.getpid(),
                daemon_started=registry.started_at(os.getpid()) or 0,
                owner=int(details["owner"]),
                purpose=str(details["purpose"]),
                hosts=building.hosts,
            )
        )
        return {"hosts": building.hosts, "switch": building.switch_place, "emulation": building.emulation}

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
