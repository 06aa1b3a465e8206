"""The process that lives in one namespace of a lab and does there what the daemon asks for.

    agent = start_agent("h1")                               # forks
    agent.ask("shape", name="eth0", bits_per_second=10e6)

Orders have numbers, and answers the number of their order: what is left of a measurement that failed is passed over.
An agent ends with the daemon.
"""

from __future__ import annotations

import contextlib
import os
import socket
import traceback
from dataclasses import dataclass
from typing import Any

from minga.lab import cables, channel, probes
from minga.lab.namespaces import NETWORK, enter, unshare

__all__ = ["Agent", "AgentError", "start_agent"]


class AgentError(RuntimeError):
    """What an agent could not do."""


@dataclass
class Agent:
    """The daemon's side of an agent."""

    name: str
    pid: int
    channel: socket.socket
    number: int = 0
    """Of the last order."""

    def order(self, action: str, **details: Any) -> None:
        """Ask for something without waiting for the answer."""
        self.number += 1
        try:
            channel.send(self.channel, {"number": self.number, "action": action, "details": details})
        except OSError:
            raise AgentError(f"{self.name} is gone") from None

    def answer(self) -> Any:
        return self.answer_with_descriptor()[0]

    def answer_with_descriptor(self) -> tuple[Any, int | None]:
        """The next answer to the last order."""
        while True:
            try:
                message, descriptor = channel.receive(self.channel)
            except ConnectionError:
                raise AgentError(f"{self.name} is gone") from None
            if message["number"] == self.number:
                break
            if descriptor is not None:
                os.close(descriptor)
        if "error" in message:
            raise AgentError(f"{self.name}: {message['error']}")
        return message["answer"], descriptor

    def end(self) -> None:
        """Its namespace goes with it, unless others live there too."""
        self.channel.close()
        channel.end(self.pid)

    def ask(self, action: str, **details: Any) -> Any:
        self.order(action, **details)
        return self.answer()


def start_agent(name: str, beside: int | None = None) -> Agent:
    """Fork a process into a network namespace of its own, or into the one of a process."""
    ours, theirs = channel.pair()
    pid = channel.fork(lambda: _Life(theirs).live(beside))
    theirs.close()
    agent = Agent(name, pid, ours)
    agent.answer()  # it is in its namespace
    return agent


class _Life:
    """The agent's side."""

    def __init__(self, daemon: socket.socket) -> None:
        self._daemon = daemon
        self._number = 0

    def live(self, beside: int | None) -> None:
        # An end of somebody else's channel that stays open here would keep its other end from noticing a loss.
        os.closerange(3, self._daemon.fileno())
        os.closerange(self._daemon.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
        try:
            if beside is not None:
                enter({"namespaces": [f"/proc/{beside}/ns/net"]})
            else:
                unshare(NETWORK)
                cables.quiet()
            self._reply("ready")
            while True:
                order, _ = channel.receive(self._daemon)
                self._number = order["number"]
                self._try(order["action"], order["details"])
        except ConnectionError:  # the daemon is done
            pass
        except BaseException as error:
            self._fail(error)

    def _try(self, action: str, details: dict[str, Any]) -> None:
        try:
            answer, descriptor = self._obey(action, details)
            self._reply(answer, descriptor)
            if descriptor is not None:
                os.close(descriptor)
        except ConnectionResetError:
            raise
        except Exception as error:
            self._fail(error)

    def _reply(self, answer: Any, descriptor: int | None = None) -> None:
        channel.send(self._daemon, {"number": self._number, "answer": answer}, descriptor)

    def _fail(self, error: BaseException) -> None:
        with contextlib.suppress(OSError):  # nobody may be left to read it
            traceback.print_exc()
        channel.send(self._daemon, {"number": self._number, "error": f"{type(error).__name__}: {error}"})

    def _obey(self, action: str, details: dict[str, Any]) -> tuple[Any, int | None]:
        match action:
            case "open_tap":
                return None, cables.open_tap(**details)
            case "receive":
                with socket.create_server((details["address"], 0)) as listener:
                    if details["window_bytes"]:
                        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, details["window_bytes"])
                    self._reply(listener.getsockname()[1])
                    return probes.receive(listener, details["seconds"]), None
            case "echo":
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
                    server.bind((details["address"], 0))
                    self._reply(server.getsockname()[1])
                    probes.echo(server)
                    return None, None
            case "send" | "ping":
                return getattr(probes, action)(**details), None
            case "make_bridge" | "make_pair" | "join_bridge" | "add_address" | "add_route":
                return getattr(cables, action)(**details), None
            case "make_island" | "set_link" | "restore_route" | "shape" | "cut_segments" | "has_netem":
                return getattr(cables, action)(**details), None
        raise AgentError(f"an agent can't {action}")
