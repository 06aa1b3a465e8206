"""Where a run listens for other machines, and what people do there.

    listening = Listening("10.0.0.1:29600", here=1)
    run(experiment, listening=listening)
    # on the others: minga join 10.0.0.1:29600 --token ...

Without this nothing of a run can be reached from outside: everything is on loopback.
"""

from __future__ import annotations

import dataclasses
import errno
import ipaddress
import os
import socket
from collections.abc import Callable
from pathlib import Path

from minga.base.spec import describe
from minga.errors import ConfigError, PortBusy
from minga.net.greeting import check_token, new_token
from minga.net.interfaces import address_of, interfaces
from minga.net.tls import load_tls
from minga.runs.experiment import Experiment

__all__ = ["TOKEN_VARIABLE", "Listening", "find_token", "join_command", "parse_address", "prepared", "reach"]

TOKEN_VARIABLE = "MINGA_TOKEN"


class Listening:
    """An address of this machine that others can reach."""

    def __init__(
        self,
        where: str | None,
        *,
        interface: str | None = None,
        here: int = 1,
        tls: str | None = None,
        token: str | None = None,
        when_listening: Callable[[str, int], None] = lambda address, port: None,
    ) -> None:
        """`where`: as people write it, ADDRESS, ADDRESS:PORT, or :PORT with the name of an interface.

        `here`: how many of the nodes train on this machine. `tls`: the directory of this node's certificate, for all
        connections; None: they are not encrypted. `when_listening`: called with where that is, as soon as it does.
        """
        address, port = parse_address(where or "")
        if interface is not None:
            own = address_of(interface)
            if address and address != own:
                raise ConfigError(f"--listen {address} is not the address of {interface}, {own}; give one of the two")
            address = own
        _check_own(address, port or 0)
        if tls is not None:
            load_tls(tls)  # for its errors
        if here < 1:
            raise ConfigError(f"at least one node trains on this machine, not {here}")
        self.address = address
        self.port = port or 0
        """0: a free one."""
        self.here = here
        self.tls = tls
        self.token = check_token(token) if token is not None else new_token()
        self.when_listening = when_listening


def parse_address(text: str) -> tuple[str, int | None]:
    """An address and a port from ADDRESS, ADDRESS:PORT or [ADDRESS]:PORT; a host's name is looked up."""
    address, port = text, ""
    if text.startswith("["):
        address, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    elif text.count(":") == 1:
        address, _, port = text.partition(":")
    if port and not (port.isdigit() and 0 < int(port) < 65536):
        raise ConfigError(f"{text!r} has no port from 1 to 65535 behind its colon; write ADDRESS:PORT")
    if address:
        try:
            ipaddress.ip_address(address)
        except ValueError:
            try:
                address = socket.gethostbyname(address)
            except OSError as error:
                raise ConfigError(f"{address!r} can't be looked up ({error.strerror}); give an IP address") from None
    return address, int(port) if port else None


def _check_own(address: str, port: int) -> None:
    there = ", ".join(str(interface) for interface in interfaces())
    if not address:
        raise ConfigError(f"say where to listen: --listen ADDRESS[:PORT] or --interface NAME; there are {there}")
    if ipaddress.ip_address(address).is_unspecified:
        raise ConfigError(
            f"{address} stands for all addresses of this machine; give the one that the others connect to: {there}"
        )
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise ConfigError(f"{address} is no address of this machine; there are {there}") from None
            raise PortBusy(
                f"can't listen on {address}, port {port}: {error.strerror}; choose another, or leave it out"
            ) from None


def find_token(given: str | None, file: Path | None) -> str | None:
    """A run's token: as given, from a file, or from the environment, where no list of processes shows it."""
    if given is not None and file is not None:
        raise ConfigError("give --token or --token-file, not both")
    if file is not None:
        try:
            return check_token(file.expanduser().read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"can't read a token from {file}: {error}") from None
    token = given if given is not None else os.environ.get(TOKEN_VARIABLE)
    return None if token is None else check_token(token)


def join_command(address: str, port: int, *, tls: bool) -> str:
    """What to type on the other machines, without the token."""
    shown = f"[{address}]" if ":" in address else address
    return f"minga join {shown}:{port}" + (" --tls DIRECTORY" if tls else "")


def reach(address: str) -> str:
    """From where an address can't be reached, as a sentence; empty if there is nothing to say."""
    if not ipaddress.ip_address(address).is_loopback:
        return ""
    others = [str(interface) for interface in interfaces() if not ipaddress.ip_address(interface.address).is_loopback]
    choice = f"; for others, --interface with one of {', '.join(others)}" if others else ""
    return f"{address} is reached from this machine only{choice}"


def prepared(experiment: Experiment, listening: Listening) -> Experiment:
    """The experiment as one whose ranks may be anywhere; `ConfigError` where that is impossible."""
    nodes = experiment.cluster.nodes
    if nodes < 2:
        raise ConfigError(f"--expect {nodes}: a run with other machines has at least 2 nodes")
    if listening.here > nodes:
        raise ConfigError(f"{listening.here} nodes here are more than the {nodes} that the run has (--expect)")
    servers = range(nodes, experiment.ranks)
    if any(listening.here <= experiment.host_of(rank) < nodes for rank in servers):
        raise ConfigError(
            f"the servers of {describe(experiment.chosen_strategy)!r} live beside workers, of whom only "
            f"{listening.here} are here; give them processes of their own, or --nodes {len(servers)}"
        )
    if experiment.in_lab:
        raise ConfigError("a lab is on this machine alone: leave out --bandwidth, --delay and --cpu, or --listen")
    cluster = dataclasses.replace(experiment.cluster, transport="tcp")
    return dataclasses.replace(experiment, cluster=cluster)
