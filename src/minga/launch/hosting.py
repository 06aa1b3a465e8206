"""Where the processes of a run live: on this machine's loopback, or on the hosts of a lab.

with hosting(experiment, run) as where:
    jobs = [Job(..., place=where.places[0])]
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minga.experiment import Experiment
from minga.launch.meeting import hold_meeting
from minga.launch.processes import Job
from minga.network import Network

__all__ = ["Hosting", "host_ranks", "hosting"]

_LOOPBACK = "127.0.0.1"
_LAB_PORT = 29500


@dataclass(frozen=True)
class Hosting:
    """For each process of a run, where it lives."""

    meeting: tuple[str, int]
    """Address and port of the store where ranks meet."""
    addresses: list[str]
    places: list[dict[str, Any] | None]
    """What a process does to move to its host (None: it stays where it is)."""
    hosts: list[str]
    """For each *rank*, a name of its host or site: ranks with the same name are near to each other."""
    helpers: list[Job]
    """Processes that the ranks need, and which end with them."""


def host_ranks(experiment: Experiment) -> list[list[int]]:
    """The ranks of each process: one, or a worker and the server that lives beside it."""
    ranks: list[list[int]] = [[] for _ in range(experiment.hosts)]
    for rank in range(experiment.ranks):
        ranks[experiment.host_of(rank)].append(rank)
    return ranks


@contextlib.contextmanager
def hosting(experiment: Experiment, run: Path) -> Iterator[Hosting]:
    """A place for every process, for as long as the `with` block lasts."""
    if experiment.in_lab:
        with _lab_hosts(experiment, run) as where:
            yield where
        return
    processes = len(host_ranks(experiment))
    with hold_meeting(_LOOPBACK, experiment.cluster.port) as port:
        yield Hosting(
            meeting=(_LOOPBACK, port),
            addresses=[_LOOPBACK] * processes,
            places=[None] * processes,
            hosts=["localhost"] * experiment.ranks,
            helpers=[],
        )


@contextlib.contextmanager
def _lab_hosts(experiment: Experiment, run: Path) -> Iterator[Hosting]:
    from minga.lab import Lab  # needs an extra that a run on loopback does without

    cluster = experiment.cluster
    shares = [experiment.cpu_of(host) for host in range(experiment.hosts)]
    with Lab(
        cluster.network or Network(), experiment.hosts, cpu=shares, pin=cluster.pin, purpose=f"run {run.name}"
    ) as lab:
        measured = lab.measure()
        (run / "network.json").write_text(json.dumps(measured.to_dict()), encoding="utf-8")
        host_of = {rank: host for host, ranks in zip(lab.hosts, host_ranks(experiment), strict=True) for rank in ranks}
        sites = bool(cluster.network and cluster.network.sites)
        yield Hosting(
            meeting=(lab.switch["address"], _LAB_PORT),
            addresses=[place["address"] for place in lab.hosts.values()],
            places=list(lab.hosts.values()),
            hosts=[lab.hosts[host_of[rank]]["site"] if sites else host_of[rank] for rank in range(experiment.ranks)],
            helpers=[
                # The store is a process at the switch: neither loopback nor a rank's fate has to do with it.
                Job(
                    name="meeting",
                    function="minga.launch.meeting:main",
                    arguments={"address": lab.switch["address"], "port": _LAB_PORT},
                    log=str(run / "logs" / "meeting.log"),
                    place=lab.switch,
                    helper=True,
                )
            ],
        )
