"""Where the processes of a run live: on this machine's loopback, or on the hosts of a lab.

with hosting(experiment, run) as where:
    jobs = [Job(..., place=where.places[0])]
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minga.launch.listening import Listening
from minga.launch.processes import Job
from minga.launch.rendezvous import hold_meeting
from minga.net.greeting import new_token
from minga.runs.experiment import Experiment
from minga.runs.network import Network

__all__ = ["COORDINATOR", "Hosting", "coordinator_file", "coordinator_job", "host_ranks", "hosting"]

_LOOPBACK = "127.0.0.1"
_LAB_PORT = 29500
# Members on other machines that were cut off come back to a coordinator that nobody has left for good.
_ABANDONED_SECONDS = 300.0
COORDINATOR = "coordinator"
"""The name of its process."""


@dataclass(frozen=True)
class Hosting:
    """For each process of a run, where it lives."""

    meeting: tuple[str, int] | None
    """Address and port of the store where ranks meet; None where a coordinator keeps a roster instead."""
    addresses: list[str]
    places: list[dict[str, Any] | None]
    """What a process does to move to its host (None: it stays where it is)."""
    hosts: list[str]
    """For each *rank*, a name of its host or site: ranks with the same name are near to each other."""
    helpers: list[Job]
    """Processes that the ranks need, and which end with them."""
    token: str | None = None
    """What members show to the coordinator, whose state is in `coordinator_file`."""


def host_ranks(experiment: Experiment) -> list[list[int]]:
    """The ranks of each process: one, or a worker and the server that lives beside it."""
    ranks: list[list[int]] = [[] for _ in range(experiment.hosts)]
    for rank in range(experiment.ranks):
        ranks[experiment.host_of(rank)].append(rank)
    return ranks


@contextlib.contextmanager
def hosting(
    experiment: Experiment, run: Path, *, elastic: bool, listening: Listening | None = None
) -> Iterator[Hosting]:
    """A place for every process, for as long as the `with` block lasts.

    `elastic`: with a coordinator, who keeps a roster of members; otherwise they meet once, at the beginning.
    `listening`: where the coordinator and the data doors of those who train here listen for other machines.
    """
    token = new_token() if elastic else None
    coordinator_file(run).unlink(missing_ok=True)  # of another session of this run
    if listening is not None:
        yield Hosting(
            meeting=None,
            addresses=[listening.address] * experiment.hosts,
            places=[None] * experiment.hosts,
            hosts=[socket.gethostname()] * experiment.ranks,
            helpers=[_listening_coordinator(experiment, run, listening)],
            token=listening.token,
        )
        return
    if experiment.in_lab:
        with _lab_hosts(experiment, run, token) as where:
            yield where
        return
    processes = len(host_ranks(experiment))
    if token is not None:
        yield Hosting(
            meeting=None,
            addresses=[_LOOPBACK] * processes,
            places=[None] * processes,
            hosts=["localhost"] * experiment.ranks,
            helpers=[coordinator_job(experiment, run, token, _LOOPBACK)],
            token=token,
        )
        return
    with hold_meeting(_LOOPBACK, experiment.cluster.port) as port:
        yield Hosting(
            meeting=(_LOOPBACK, port),
            addresses=[_LOOPBACK] * processes,
            places=[None] * processes,
            hosts=["localhost"] * experiment.ranks,
            helpers=[],
        )


@contextlib.contextmanager
def _lab_hosts(experiment: Experiment, run: Path, token: str | None) -> Iterator[Hosting]:
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
            meeting=(lab.switch["address"], _LAB_PORT) if token is None else None,
            addresses=[place["address"] for place in lab.hosts.values()],
            places=list(lab.hosts.values()),
            hosts=[lab.hosts[host_of[rank]]["site"] if sites else host_of[rank] for rank in range(experiment.ranks)],
            helpers=[
                # At the switch: neither loopback nor a rank's fate has to do with it.
                _meeting_job(run, lab.switch)
                if token is None
                else coordinator_job(experiment, run, token, lab.switch["address"], lab.switch)
            ],
            token=token,
        )


def _meeting_job(run: Path, place: dict[str, Any]) -> Job:
    return Job(
        name="meeting",
        function="minga.launch.rendezvous:main",
        arguments={"address": place["address"], "port": _LAB_PORT},
        log=str(run / "logs" / "meeting.log"),
        place=place,
        helper=True,
    )


def coordinator_file(run: Path) -> Path:
    """The coordinator's memory, which also says where it listens."""
    return run / "coordinator.json"


def _listening_coordinator(experiment: Experiment, run: Path, listening: Listening) -> Job:
    """It is no helper: it ends when everybody has, and others may go on after those who train here."""
    job = coordinator_job(experiment, run, listening.token, listening.address)
    more = {
        "port": listening.port,
        "tls": listening.tls,
        "description": experiment.to_toml(),
        "own": [*range(listening.here), *range(experiment.cluster.nodes, experiment.ranks)],  # servers are here too
        "events": str(run / "events"),
        "abandoned_seconds": _ABANDONED_SECONDS,
    }
    return dataclasses.replace(job, arguments={**job.arguments, **more}, helper=False)


def coordinator_job(
    experiment: Experiment, run: Path, token: str, address: str, place: dict[str, Any] | None = None
) -> Job:
    """Who keeps the roster of a run, outside of all ranks. It may be started again when it has died."""
    cluster = experiment.cluster
    rules = {
        "expect": experiment.ranks,
        "min_nodes": cluster.min_nodes,
        "min_servers": experiment.chosen_strategy.traits.servers,  # each has a part that nobody else has
        "heartbeat_seconds": min(1.0, cluster.heartbeat_timeout_seconds / 5),
        "heartbeat_timeout_seconds": cluster.heartbeat_timeout_seconds,
        "progress_timeout_seconds": cluster.heartbeat_timeout_seconds,
    }
    return Job(
        name=COORDINATOR,
        function="minga.membership.coordinator_process:main",
        arguments={
            "state": str(coordinator_file(run)),
            "run": run.name,
            "token": token,
            "rules": rules,
            "address": address,
            "port": cluster.port,
        },
        log=str(run / "logs" / "coordinator.log"),
        place=place,
        helper=True,
    )
