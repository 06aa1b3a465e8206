"""The process that holds a lab: it makes the hosts, joins them, measures links, and takes all of it down again.

    python -m minga.lab.daemon NAME DESCRIPTOR       # started by `Lab`, which talks to it through the descriptor

The lab lives exactly as long as its owner, or as the owner's end of that channel is open: when the owner is done, fails
or is killed, the daemon notices and removes everything. Should the daemon itself be killed, the kernel ends the
agents and the relay with it, and network namespaces without processes vanish by themselves.

Each host has a network namespace with one interface, eth0. The switches are bridges in one more namespace, where each
host's cable ends in an interface with the host's name: nothing of a lab is seen outside of it, and labs can't collide.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from minga.base.config import build
from minga.errors import ConfigError
from minga.lab import channel, registry
from minga.lab.agent import Agent, AgentError, start_agent
from minga.lab.cpu_shares import CpuShares
from minga.lab.limits import check_rates
from minga.lab.measurement import Measurement
from minga.lab.namespaces import NETWORK, USER, unshare
from minga.lab.relay import Direction, Relay
from minga.runs.network import Link, LinkOverride, Network

__all__ = ["main"]

_PREFIX = 16
_SWITCH_ADDRESS = "10.77.255.254"


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


class Building:
    """A network that stands until `close`."""

    def __init__(self, name: str, network: Network, *, rootless: bool) -> None:
        self._network = network
        self._rootless = rootless
        self._shares = CpuShares(name)
        self._agents: dict[str, Agent] = {}
        self._links: dict[str, Link] = {}
        self._delayed: dict[str, int] = {}
        """By cable: the number of its first direction in the relay."""
        self._directions: list[Direction] = []
        self._relay: tuple[int, socket.socket] | None = None
        self._islands = 0
        self._unplugged: set[str] = set()
        self.emulation = "none"
        self.hosts: dict[str, dict[str, Any]] = {}
        self.switch_place: dict[str, Any] = {}

    def build(self, hosts: int, cpu: Sequence[float | None], *, pin: bool) -> None:
        names = [f"h{number}" for number in range(1, hosts + 1)]
        switch = self._agents["switch"] = start_agent("switch")
        self._links = {name: self._network.link_of(name) for name in names}
        between = self._network.between if self._network.sites else None
        links = [*self._links.values(), *([between] if between else [])]
        if any(link.delays for link in links):
            # The kernel would send packets in another order where their delays differ; the relay does not.
            jitter = any(link.jitter for link in links)
            self.emulation = "netem" if not jitter and switch.ask("has_netem") else "relay"
        cores = sorted(os.sched_getaffinity(0))
        for site in ("site1", "site2") if between else ("site1",):
            switch.ask("make_bridge", name=site)
        for index, name in enumerate(names):
            agent = self._agents[name] = start_agent(name)
            site, address = f"site{self._network.site_of(index) + 1}", _address(index)
            self._lay(name, self._links[name], site)
            agent.ask("add_address", name="eth0", address=address, prefix=_PREFIX)
            share = cpu[index] if cpu else None
            self.hosts[name] = {
                "address": address,
                "site": site,
                "namespaces": self._namespaces(agent),
                "cgroup": None if share is None else self._share(name, share),
                "cores": [cores[index % len(cores)]] if pin else [],
            }
        if between:
            self._join_sites(between)
            if between.loss:
                for name in names:
                    self._agents[name].ask("cut_segments", name="eth0", cut=True)
        switch.ask("add_address", name="site1", address=_SWITCH_ADDRESS, prefix=_PREFIX)
        for place in self.hosts.values():
            if place["site"] == "site2":  # the switch has one address, and answers each host at its own site
                switch.ask("add_route", destination=place["address"], name="site2")
        self.switch_place = {"address": _SWITCH_ADDRESS, "namespaces": self._namespaces(switch)}
        if self._directions:
            self._start_relay()

    def _share(self, name: str, cores: float) -> str:
        try:
            return str(self._shares.grant(name, cores))
        except OSError as error:
            raise AgentError(
                f"{name} can't be given {cores:g} of a core by control groups: {error.strerror or error}. Run as root "
                "where they can be used (minga doctor shows more), or leave out cpu and pretend with cluster.speeds"
            ) from None

    def _namespaces(self, agent: Agent) -> list[str]:
        kinds = ("user", "net") if self._rootless else ("net",)
        return [f"/proc/{agent.pid}/ns/{kind}" for kind in kinds]

    def _lay(self, name: str, link: Link, bridge: str) -> None:
        """A host's cable: `eth0` there, the host's name at the switch."""
        host, switch = self._agents[name], self._agents["switch"]
        if link.delays and self.emulation == "relay":
            near, far = _tap(host, "eth0"), _tap(switch, name)
            self._delayed[name] = len(self._directions)
            # Only what leaves the host is delayed: one way from any host to any other then takes `delay`.
            self._directions += [
                Direction(near, far, link.delay, link.jitter, link.loss),
                Direction(far, near),
            ]
        else:
            switch.ask("make_pair", name=name, other="eth0", pid=host.pid)
        switch.ask("join_bridge", name=name, bridge=bridge)
        host.ask("cut_segments", name="eth0", cut=bool(link.loss))
        self._shape(host, "eth0", link.bandwidth_up, link)
        self._shape(switch, name, link.bandwidth_down, None, behind=True)

    def _join_sites(self, between: Link) -> None:
        switch = self._agents["switch"]
        if between.delays and self.emulation == "relay":
            first, second = _tap(switch, "to-site2"), _tap(switch, "to-site1")
            values = (between.delay, between.jitter, between.loss)
            self._directions += [Direction(first, second, *values), Direction(second, first, *values)]
        else:
            switch.ask("make_pair", name="to-site2", other="to-site1", pid=None)
        switch.ask("join_bridge", name="to-site2", bridge="site1")
        switch.ask("join_bridge", name="to-site1", bridge="site2")
        self._shape(switch, "to-site2", between.bandwidth_up, between)
        self._shape(switch, "to-site1", between.bandwidth_down, between)

    def _shape(
        self,
        agent: Agent,
        interface: str,
        rate: float | None,
        delaying: Link | None,
        *,
        behind: bool = False,
        change: bool = False,
    ) -> None:
        netem = None
        if delaying is not None and self.emulation == "netem":  # also with zeros, so that they can be changed later
            netem = {"delay": delaying.delay, "jitter": delaying.jitter, "loss": delaying.loss}
        if rate is not None or netem is not None or change:
            agent.ask("shape", name=interface, bits_per_second=rate, netem=netem, behind=behind, change=change)

    def _start_relay(self) -> None:
        ours, theirs = channel.pair()

        def relay() -> None:
            ours.close()
            _hurry()
            Relay(self._directions).run(theirs)

        self._relay = (channel.fork(relay), ours)
        theirs.close()
        for direction in self._directions:  # they are the relay's now; each one is read from once and written to once
            os.close(direction.read)

    def adjust(self, host: str, override: LinkOverride) -> None:
        """Change some values of a host's cable, and leave the others."""
        self._known(host)
        self.change(host, override.over(self._links[host]))

    def _known(self, host: str) -> None:
        if host not in self._links:
            raise ConfigError(f"there is no host {host!r}; there are {', '.join(self._links)}")

    def change(self, host: str, link: Link) -> None:
        """Give a host's cable other values while it is in use."""
        self._known(host)
        check_rates(link)
        if link.delays and host not in self._delayed and self.emulation != "netem":
            raise ConfigError(
                f"the cable of {host} was laid without a delay; make the lab with a delay to change it later"
            )
        self._links[host] = link
        if not self._network.between.loss:
            self._agents[host].ask("cut_segments", name="eth0", cut=bool(link.loss))
        self._shape(self._agents[host], "eth0", link.bandwidth_up, link, change=True)
        self._shape(self._agents["switch"], host, link.bandwidth_down, None, behind=True, change=True)
        if host in self._delayed and self._relay is not None:
            values = {"delay": link.delay, "jitter": link.jitter, "loss": link.loss}
            channel.send(self._relay[1], {"direction": self._delayed[host], **values})

    def cut(self, hosts: Sequence[str], *, loud: bool) -> None:
        """Cut hosts off, together: they have each other still. `loud`: each alone, and its kernel notices."""
        for host in hosts:
            self._known(host)
            if loud and host in self._delayed:
                raise ConfigError(f"the cable of {host} has a delay, and only its silent cut is possible")
        switch = self._agents["switch"]
        if loud:
            for host in hosts:
                self._agents[host].ask("set_link", name="eth0", up=False)
                self._unplugged.add(host)
            return
        self._islands += 1
        island = f"island{self._islands}"
        switch.ask("make_island", name=island)
        for host in hosts:
            switch.ask("join_bridge", name=host, bridge=island)

    def mend(self, hosts: Sequence[str]) -> None:
        """Join hosts again that were cut off."""
        for host in hosts:
            self._known(host)
            place = self.hosts[host]
            if host in self._unplugged:
                self._unplugged.discard(host)
                self._agents[host].ask("set_link", name="eth0", up=True)
                self._agents[host].ask("restore_route", name="eth0", address=place["address"], prefix=_PREFIX)
            self._agents["switch"].ask("join_bridge", name=host, bridge=place["site"])

    def measure(self) -> list[dict[str, Any]]:
        """What each cable really does; see `measurement`."""
        between = self._network.between if self._network.sites else None
        return Measurement(self._agents, self._links, self.hosts, _SWITCH_ADDRESS).measure(between)

    def close(self) -> None:
        """Take everything down; network namespaces go with their last process."""
        if self._relay is not None:
            self._relay[1].close()
            channel.end(self._relay[0])
        for agent in self._agents.values():
            agent.end()
        self._shares.remove()


def _tap(agent: Agent, name: str) -> int:
    agent.order("open_tap", name=name)
    _, descriptor = agent.answer_with_descriptor()
    assert descriptor is not None
    return descriptor


def _hurry() -> None:
    """Let the relay run when a packet is due, whatever the hosts compute: it needs little, but on time."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, -10)


def _address(index: int) -> str:
    return f"10.77.{(index + 1) // 250}.{(index + 1) % 250}"


if __name__ == "__main__":
    main()
