"""The process that lives in one namespace of a lab and does there what the keeper asks for.

    agent = start_agent("h1", control_end)          # forks
    ask(agent.channel, "shape", name="eth0", bits_per_second=10e6)

Orders and answers are JSON, one packet each; a descriptor may come with an answer. It ends with the keeper.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import traceback
from dataclasses import dataclass
from typing import Any, NoReturn

from minga.lab import cables, probes
from minga.lab.namespaces import NETWORK, die_with_parent, enter, unshare

__all__ = ["Agent", "AgentError", "start_agent"]

_LONGEST = 1 << 16


class AgentError(RuntimeError):
    """What an agent could not do."""


@dataclass
class Agent:
    """The keeper's side of an agent."""

    name: str
    pid: int
    channel: socket.socket

    def order(self, action: str, **details: Any) -> None:
        """Ask for something without waiting for the answer."""
        self.channel.send(json.dumps({"action": action, **details}).encode())

    def answer(self) -> Any:
        return self.answer_with_descriptor()[0]

    def answer_with_descriptor(self) -> tuple[Any, int | None]:
        content, descriptors, _, _ = socket.recv_fds(self.channel, _LONGEST, 1)
        if not content:
            raise AgentError(f"{self.name} is gone")
        message = json.loads(content)
        if "error" in message:
            raise AgentError(f"{self.name}: {message['error']}")
        return message["answer"], (descriptors[0] if descriptors else None)

    def end(self) -> None:
        """Its namespace goes with it, unless others live there too."""
        self.channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def ask(self, action: str, **details: Any) -> Any:
        self.order(action, **details)
        return self.answer()


def start_agent(name: str, beside: int | None = None) -> Agent:
    """Fork a process into a network namespace of its own, or into the one of a process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        _live(theirs, beside)
    theirs.close()
    agent = Agent(name, pid, ours)
    agent.answer()  # it is in its namespace
    return agent


def _live(channel: socket.socket, beside: int | None) -> NoReturn:
    try:
        die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if beside is not None:
            enter({"namespaces": [f"/proc/{beside}/ns/net"]})
        else:
            unshare(NETWORK)
            cables.quiet()
        _reply(channel, {"answer": "ready"})
        while content := channel.recv(_LONGEST):
            order = json.loads(content)
            try:
                answer, descriptor = _obey(channel, order.pop("action"), order)
                _reply(channel, {"answer": answer}, descriptor)
                if descriptor is not None:
                    os.close(descriptor)
            except Exception as error:
                traceback.print_exc()
                _reply(channel, {"error": f"{type(error).__name__}: {error}"})
    except BaseException as error:
        traceback.print_exc()
        _reply(channel, {"error": f"{type(error).__name__}: {error}"})
    finally:
        sys.stderr.flush()
        os._exit(0)


def _reply(channel: socket.socket, message: dict[str, Any], descriptor: int | None = None) -> None:
    content = json.dumps(message).encode()
    if descriptor is None:
        channel.send(content)
    else:
        socket.send_fds(channel, [content], [descriptor])


def _obey(channel: socket.socket, action: str, details: dict[str, Any]) -> tuple[Any, int | None]:
    match action:
        case "open_tap":
            return None, cables.open_tap(**details)
        case "receive":
            with socket.create_server((details["address"], 0)) as listener:
                if details["window_bytes"]:
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, details["window_bytes"])
                _reply(channel, {"answer": listener.getsockname()[1]})
                return probes.receive(listener, details["seconds"]), None
        case "echo":
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
                server.bind((details["address"], 0))
                _reply(channel, {"answer": server.getsockname()[1]})
                probes.echo(server)
                return None, None
        case "send" | "ping":
            return getattr(probes, action)(**details), None
        case "make_bridge" | "make_pair" | "join_bridge" | "add_address" | "add_route":
            return getattr(cables, action)(**details), None
        case "shape" | "cut_segments" | "has_netem":
            return getattr(cables, action)(**details), None
    raise AgentError(f"an agent can't {action}")
