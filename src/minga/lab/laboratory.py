"""Hosts on this machine, with a network between them that is as slow as you like.

    with Lab(Network(bandwidth="10mbit", delay="5ms"), hosts=4) as lab:
        print(lab.measure().bandwidth_measured)
        subprocess.run(["ip", "address"], preexec_fn=lab.entering("h1"))
        lab.change("h1", Link(bandwidth="1mbit"))

Whatever happens inside, nothing of the lab is left afterwards; also not if this process is killed.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import IO, Any, Self

from minga.errors import ConfigError, LabError
from minga.lab import channel, registry
from minga.lab.limits import check_network, check_rights
from minga.lab.namespaces import enter
from minga.runs.network import Link, LinkOverride, Network

__all__ = ["Lab", "Measured", "adjust_link", "cut_hosts", "mend_hosts"]


_PATIENCE_SECONDS = 60.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """What the links of a lab were asked to do and what they do: bits of TCP payload per second, seconds one way."""

    bandwidth_asked: float | None
    """Of the slowest link, in its slower direction."""
    bandwidth_measured: float | None
    """The median of the links that were asked for that."""
    delay_asked: float
    """The longest of any host."""
    delay_measured: float | None
    """The median of those that were asked for that."""
    emulation: str
    """Who delays packets: netem, relay, none."""
    links: list[dict[str, Any]]
    """One entry for each host's cable, and one for the cable between two sites."""

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "off": self.off}

    @property
    def off(self) -> list[str]:
        """Links that don't do what was asked, in words."""
        found = []
        for link in self.links:
            for way in ("up", "down"):
                asked, measured = link[f"{way}_asked"], link[f"{way}_measured"]
                if asked and measured is not None and not link["loss_asked"] and abs(measured / asked - 1) > 0.05:
                    found.append(f"{link['host']} {way}: {measured / 1e6:.2f} Mbit/s instead of {asked / 1e6:g}")
            delay = link["delay_measured"]
            if delay is not None and abs(delay - link["delay_asked"]) > max(0.002, 0.1 * link["delay_asked"]):
                found.append(f"{link['host']}: {1000 * delay:.1f} ms instead of {1000 * link['delay_asked']:g}")
        return found


class Lab:
    """A running lab; use it as a context manager."""

    def __init__(
        self, network: Network, hosts: int, *, cpu: Sequence[float | None] = (), pin: bool = False, purpose: str = ""
    ) -> None:
        """`cpu`: cores' worth of time of each host (None: no limit); one value holds for all; `pin`: one core each.

        `purpose` is what `minga lab list` says of it.
        """
        check_network(network, hosts)
        if len(cpu) not in (0, 1, hosts):
            raise ConfigError(f"cpu should have one value, or one for each of the {hosts} hosts, not {len(cpu)}")
        most = os.cpu_count() or 1
        if any(share is not None and share > most for share in cpu):
            raise ConfigError(f"cpu should be at most the {most} cores of this machine, not {list(cpu)}")
        self.network = network
        self.name = registry.new_name()
        self.hosts: dict[str, dict[str, Any]] = {}
        """By name (h1, h2, ...): address, site, namespaces, cgroup, cores."""
        self.switch: dict[str, Any] = {}
        """The place of the switches, which has an address, too."""
        self.emulation = "none"
        self._order = {
            "network": dataclasses.asdict(network),
            "hosts": hosts,
            "cpu": list(cpu) * (hosts if len(cpu) == 1 else 1),
            "pin": pin,
            "purpose": purpose,
        }
        self._daemon: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._errors: IO[bytes] | None = None

    def __enter__(self) -> Self:
        rootless = check_rights()
        for name in registry.leftovers():
            registry.clean(name)
        self._channel, theirs = channel.pair()
        self._errors = tempfile.TemporaryFile()
        with theirs:
            self._daemon = subprocess.Popen(
                [sys.executable, "-m", "minga.lab.daemon", self.name, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=[theirs.fileno()],
                # As root of a namespace of its own it could not know whose directory to use.
                env={**os.environ, registry.VARIABLE: str(registry.directory())},
                start_new_session=True,  # Ctrl-C is for the owner, whose leaving the daemon notices
            )
        try:
            built = self._ask("build", rootless=rootless, owner=os.getpid(), **self._order)
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        self.hosts, self.switch, self.emulation = built["hosts"], built["switch"], built["emulation"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._channel is not None:
            self._channel.close()
        if self._daemon is not None:
            if error is not None:  # it may be in the middle of a measurement
                self._daemon.terminate()
            try:
                self._daemon.wait(_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                self._daemon.kill()
                self._daemon.wait()
            if self._daemon.returncode != 0:  # it could not clean up behind itself
                registry.clean(self.name)
        if self._errors is not None:
            self._errors.close()

    def measure(self) -> Measured:
        """Measure all links: a second or two, during which nothing else should use them."""
        links: list[dict[str, Any]] = self._ask("measure")
        ways = [
            (link[f"{way}_asked"] or float("inf"), link[f"{way}_measured"])
            for link in links
            for way in ("up", "down")
            if link[f"{way}_measured"] is not None
        ]
        slowest = min(asked for asked, _ in ways)
        hosts = [link for link in links if link["host"] in self.hosts]
        longest = max(link["delay_asked"] for link in hosts)
        delays = [link["delay_measured"] for link in hosts if link["delay_asked"] == longest]
        return Measured(
            bandwidth_asked=None if slowest == float("inf") else slowest,
            bandwidth_measured=statistics.median(measured for asked, measured in ways if asked == slowest),
            delay_asked=longest,
            delay_measured=statistics.median(delays) if None not in delays else None,
            emulation=self.emulation,
            links=links,
        )

    def change(self, host: str, link: Link) -> None:
        """Give the cable of a host other values, while it is in use."""
        self._ask("change", host=host, link=dataclasses.asdict(link))

    def cut(self, *hosts: str, loud: bool = False) -> None:
        """Cut hosts off from the rest, silently: packets get lost. Together they have each other.

        `loud`: pull out their cables instead, so that each is alone and its own kernel knows.
        """
        self._ask("cut", hosts=hosts, loud=loud)

    def mend(self, *hosts: str) -> None:
        """Join hosts again that were cut off."""
        self._ask("mend", hosts=hosts)

    def entering(self, host: str) -> Callable[[], None]:
        """A function that moves the process that calls it to a host; for `preexec_fn`."""
        if host not in self.hosts:
            raise ConfigError(f"there is no host {host!r}; there are {', '.join(self.hosts)}")
        place = self.hosts[host]
        return lambda: enter(place)

    def _ask(self, action: str, **details: Any) -> Any:
        assert self._channel is not None
        links = [self.network, self.network.between, *map(self.network.link_of, self.network.hosts)]
        self._channel.settimeout(_PATIENCE_SECONDS + 500 * max(link.delay for link in links))
        try:
            return _exchange(self._channel, action, details)
        except ConnectionError:
            raise LabError(f"the lab {self.name} is gone: {self._last_words()}") from None
        except TimeoutError:
            raise LabError(f"the lab {self.name} does not answer; is this machine very busy?") from None

    def _last_words(self) -> str:
        assert self._errors is not None
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return "\n".join(lines[-5:]) or "without a message (killed?)"


def adjust_link(record: registry.Record, host: str, override: LinkOverride) -> None:
    """Change some values of a cable of a lab that another process has made."""
    _ask_other(record, "adjust", {"host": host, "override": dataclasses.asdict(override)})


def cut_hosts(record: registry.Record, hosts: Sequence[str], *, loud: bool = False) -> None:
    """Cut off hosts of a lab that another process has made; see `Lab.cut`."""
    _ask_other(record, "cut", {"hosts": list(hosts), "loud": loud})


def mend_hosts(record: registry.Record, hosts: Sequence[str]) -> None:
    """Join hosts again of a lab that another process has made."""
    _ask_other(record, "mend", {"hosts": list(hosts)})


def _ask_other(record: registry.Record, action: str, details: dict[str, Any]) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(_PATIENCE_SECONDS)
        try:
            connection.connect(str(registry.socket_of(record.name)))
            _exchange(connection, action, details)
        except OSError:
            raise LabError(f"the lab {record.name} does not answer; 'minga lab list' shows which there are") from None


def _exchange(connection: socket.socket, action: str, details: dict[str, Any]) -> Any:
    channel.send(connection, {"action": action, **details})
    message, _ = channel.receive(connection)
    if "error" in message:
        raise (ConfigError if message["usage"] else LabError)(message["error"])
    return message["answer"]
