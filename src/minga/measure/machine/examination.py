"""Looking at everything: the system, the network, what a lab needs, energy counters.

    examine(minga_version="0.1.0", threads_per_rank=1).local_run_works

A look that fails is a finding too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import psutil  # type: ignore[import-untyped]

from minga.measure.machine.energy import energy
from minga.measure.machine.findings import MachineFinding, State, first_line, make_finding
from minga.measure.machine.lab import control_groups, namespaces, netlink_library, relay, traffic_shaping
from minga.measure.machine.network import loopback, network, outward_address
from minga.measure.machine.system import cores, data_directory, devices, disk, memory, threads, versions

__all__ = ["MachineExamination", "examine"]


@dataclass(frozen=True, kw_only=True)
class MachineExamination:
    """Everything that was found on one machine."""

    findings: tuple[MachineFinding, ...]
    """In the order of their topics."""

    @property
    def local_run_works(self) -> bool:
        return all(finding.state == "ok" for finding in self.findings if finding.needed)

    @property
    def counts(self) -> Mapping[State, int]:
        """How many findings are in each state."""
        states = [finding.state for finding in self.findings]
        return {state: states.count(state) for state in ("ok", "limited", "missing", "unknown")}

    def to_dict(self) -> dict[str, Any]:
        findings = [asdict(finding) for finding in self.findings]
        return {"local_run_works": self.local_run_works, "counts": dict(self.counts), "findings": findings}


def examine(*, minga_version: str, threads_per_rank: int | None) -> MachineExamination:
    """Look at everything; the caller knows Minga's own version and default."""
    looks: list[tuple[str, str, Callable[[], list[MachineFinding]]]] = [
        ("versions", "torch", lambda: versions(minga_version)),
        ("processor", "cores", lambda: [cores()]),
        ("processor", "memory", lambda: [memory()]),
        ("processor", "threads per rank", lambda: [threads(threads_per_rank)]),
        ("devices", "gloo", devices),
        ("network", "loopback", lambda: [loopback()]),
        ("network", "interfaces", lambda: network(psutil.net_if_addrs(), psutil.net_if_stats(), outward_address())),
        ("lab", "network namespaces", lambda: [namespaces()]),
        ("lab", "shaping", traffic_shaping),
        ("lab", "delays in user space", lambda: [relay()]),
        ("lab", "netlink library", lambda: [netlink_library()]),
        ("lab", "CPU shares", lambda: [control_groups()]),
        ("energy", "counters", energy),
        ("data", "data directory", lambda: data_directory(os.environ.get("MINGA_DATA"))),
        ("data", "disk", lambda: [disk()]),
    ]
    findings: list[MachineFinding] = []
    for topic, name, look in looks:
        try:
            findings += look()
        except Exception as error:  # a doctor must not die of what it looks at; tomorrow's machines surprise it
            found = f"looking failed: {type(error).__name__}: {first_line(error)}"
            remedy = "this is an error in Minga; please report it with this line"
            if isinstance(error, OSError):
                remedy = "let this user and process read what the message names"
            needed = name in ("torch", "gloo", "loopback")
            findings.append(make_finding(topic, name, "unknown", found, remedy, needed=needed))
    return MachineExamination(findings=tuple(findings))
