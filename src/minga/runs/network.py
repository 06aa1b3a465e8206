"""The network between hosts, as data: what the laboratory builds and the simulator computes with.

    Network(bandwidth="10mbit", delay="5ms")                                     # a star: four equal hosts
    Network(bandwidth="1gbit", sites=(2, 2), between=Link(bandwidth="20mbit", delay="15ms"))

Every host has a cable to its site's switch. Two sites are joined by one more cable, which all of their hosts share.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field

from minga.base.config import Config, FieldError
from minga.base.units import Bandwidth, Duration, Fraction

__all__ = ["Link", "LinkOverride", "Network"]


@dataclass(frozen=True, kw_only=True)
class Link(Config):
    """A cable. Bandwidth is what a TCP connection carries: payload, with the headers on top."""

    kind = "link"

    bandwidth: Bandwidth | None = None
    """Each way, such as 10mbit (None: as fast as this machine)."""

    up: Bandwidth | None = None
    """Away from the host, where it differs from `bandwidth`."""

    down: Bandwidth | None = None
    """Towards the host, where it differs from `bandwidth`."""

    delay: Duration = 0.0
    """One way, from one host to another, such as 5ms: a round trip takes twice that."""

    jitter: Duration = 0.0
    """How far the delay of a packet may be from `delay`, either way; packets stay in order."""

    loss: Fraction = 0.0
    """The part of packets that get lost, such as 1%."""

    def check(self) -> None:
        for name in ("bandwidth", "up", "down"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise FieldError((name,), f"should be bits a second above 0, not {value:g}")
        if not 0 <= self.delay <= 2:
            raise FieldError(("delay",), f"should be from 0ms to 2s, not {self.delay:g} s")
        if not 0 <= self.jitter <= self.delay:
            raise FieldError(("jitter",), f"should be from 0 to the delay of {self.delay:g} s, not {self.jitter:g} s")
        if not 0 <= self.loss < 1:
            raise FieldError(("loss",), f"should be from 0 to below 1, not {self.loss:g}")

    @property
    def bandwidth_up(self) -> float | None:
        return self.up if self.up is not None else self.bandwidth

    @property
    def bandwidth_down(self) -> float | None:
        return self.down if self.down is not None else self.bandwidth

    @property
    def delays(self) -> bool:
        """Whether it does more to packets than to let them through at some rate."""
        return bool(self.delay or self.loss)


@dataclass(frozen=True, kw_only=True)
class LinkOverride(Config):
    """What is different about one cable; what is not said (None) is as for all the others."""

    kind = "override of a link"

    bandwidth: Bandwidth | None = None
    """Each way; it also stands above `up` and `down` that are said for all."""

    up: Bandwidth | None = None
    """Away from the host."""

    down: Bandwidth | None = None
    """Towards the host."""

    delay: Duration | None = None
    """One way, from this host to another."""

    jitter: Duration | None = None
    """How far the delay of a packet may be off."""

    loss: Fraction | None = None
    """The part of packets that get lost."""

    def over(self, link: Link) -> Link:
        """The link with what is said here."""
        said = {name: value for name, value in vars(self).items() if value is not None}
        if "bandwidth" in said:
            said = {"up": None, "down": None} | said
        if "delay" in said and "jitter" not in said:
            said["jitter"] = min(link.jitter, said["delay"])
        values = {entry.name: getattr(link, entry.name) for entry in dataclasses.fields(Link)}
        return Link(**values | said)


@dataclass(frozen=True, kw_only=True)
class Network(Link):
    """A star of equal cables, with exceptions; or two sites with a thin link between them."""

    kind = "network"

    hosts: dict[str, LinkOverride] = field(default_factory=dict)
    """Cables that differ: `hosts.h2.bandwidth = "1mbit"`. What is left out there is as for all the others."""

    sites: tuple[int, ...] = ()
    """How many hosts each of two sites has, such as 2,2; empty: all are at one."""

    between: Link = field(default_factory=Link)
    """The cable between the sites; `up` is from the first one to the second."""

    def check(self) -> None:
        super().check()
        if self.sites and (len(self.sites) != 2 or min(self.sites) < 1):
            raise FieldError(("sites",), f"should be the numbers of hosts at two sites, such as 2,2, not {self.sites}")
        if not self.sites and self.between != Link():
            raise FieldError(("between",), "is the cable between two sites: give sites too, such as sites = [2, 2]")

    def link_of(self, host: str) -> Link:
        """The cable of a host: its own, filled up with what holds for all."""
        return self.hosts.get(host, LinkOverride()).over(self)

    def site_of(self, index: int) -> int:
        """The site (0 or 1) of the host with this number, counted from 0; hosts beyond the last are at site 0."""
        return int(bool(self.sites) and self.sites[0] <= index < sum(self.sites))

    def check_hosts(self, hosts: int) -> None:
        """Raise `FieldError` unless the exceptions and sites fit that many hosts."""
        names = [f"h{number}" for number in range(1, hosts + 1)]
        for name in self.hosts:
            if name not in names:
                raise FieldError(("hosts", name), f"there is no such host; there are {', '.join(names)}")
            try:
                self.link_of(name)
            except FieldError as error:
                raise error.inside(name).inside("hosts") from None
        if self.sites and sum(self.sites) > hosts:
            raise FieldError(("sites",), f"has {sum(self.sites)} hosts, but there are only {hosts}")
