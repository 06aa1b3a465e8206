"""Where the processes of a run live: on this machine's loopback, or on the hosts of a lab.

with placed(experiment, run, elastic=True) as placement:
    jobs = [Job(..., place=placement.places[0])]
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minga.base.config import build
from minga.comm.rendezvous import hold_meeting
from minga.launch.listening import Listening
from minga.launch.orders import Meeting
from minga.launch.processes import Job
from minga.membership.coordinator import CoordinatorOrder
from minga.membership.rules import Rules
from minga.net.greeting import new_token
from minga.runs.experiment import Experiment
from minga.runs.network import Network

__all__ = ["COORDINATOR", "Placement", "coordinator_file", "host_ranks", "keep_meeting", "placed"]

_LOOPBACK = "127.0.0.1"
_LAB_PORT = 29500
# Members on other machines that were cut off come back to a coordinator that nobody has left for good.
_ABANDONED_SECONDS = 300.0
COORDINATOR = "coordinator"
"""The name of its process."""


@dataclass(frozen=True)
class Placement:
    """For each process of a run, where it lives."""

    meeting: Meeting | None
    """Where ranks meet; None where a coordinator keeps a roster instead."""
    addresses: Sequence[str]
    places: Sequence[Mapping[str, Any] | None]
    """What a process does to move to its host (None: it stays where it is)."""
    hosts: Sequence[str]
    """For each *rank*, a name of its host or site: ranks with the same name are near to each other."""
    helpers: list[Job]
    """Processes that the ranks need."""
    token: str | None = None
    """What members show to the coordinator, whose state is in `coordinator_file`."""


def host_ranks(experiment: Experiment) -> list[list[int]]:
    """The ranks of each process: one, or a worker and the server that lives beside it."""
    ranks: list[list[int]] = [[] for _ in range(experiment.hosts)]
    for rank in range(experiment.ranks):
        ranks[experiment.host_of(rank)].append(rank)
    return ranks


@contextlib.contextmanager
def placed(
    experiment: Experiment, run: Path, *, elastic: bool, listening: Listening | None = None
) -> Iterator[Placement]:
    """A place for every process, for as long as the `with` block lasts.

    `elastic`: with a coordinator, who keeps a roster of members; otherwise they meet once, at the beginning.
    `listening`: where the coordinator and the data doors of those who train here listen for other machines.
    """
    coordinator_file(run).unlink(missing_ok=True)  # of another session of this run
    if experiment.in_lab:
        with _in_lab(experiment, run, elastic=elastic) as placement:
            yield placement
        return
    address = _LOOPBACK if listening is None else listening.address
    host = "localhost" if listening is None else socket.gethostname()
    addresses, hosts = [address] * experiment.hosts, [host] * experiment.ranks
    places: list[Mapping[str, Any] | None] = [None] * experiment.hosts
    if elastic:
        token = new_token() if listening is None else listening.token
        coordinator = _coordinator(experiment, run, token, address, listening=listening)
        yield Placement(None, addresses, places, hosts, [coordinator], token)
    elif experiment.ranks == 1:
        yield Placement(Meeting(address=address, port=0, hosts=tuple(hosts)), addresses, places, hosts, [])
    else:
        with hold_meeting(address, experiment.cluster.port) as port:
            yield Placement(Meeting(address=address, port=port, hosts=tuple(hosts)), addresses, places, hosts, [])


@contextlib.contextmanager
def _in_lab(experiment: Experiment, run: Path, *, elastic: bool) -> Iterator[Placement]:
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
        hosts = [lab.hosts[host_of[rank]]["site"] if sites else host_of[rank] for rank in range(experiment.ranks)]
        # At the switch: neither loopback nor a rank's fate has to do with it.
        address = lab.switch["address"]
        addresses, places = [place["address"] for place in lab.hosts.values()], [*lab.hosts.values()]
        if elastic:
            token = new_token()
            coordinator = _coordinator(experiment, run, token, address, lab.switch)
            yield Placement(None, addresses, places, hosts, [coordinator], token)
        else:
            meeting = Meeting(address=address, port=_LAB_PORT, hosts=tuple(hosts))
            keeper = Job(
                name="meeting",
                function="minga.launch.placement:keep_meeting",
                order=meeting,
                log=str(run / "logs" / "meeting.log"),
                place=lab.switch,
                helper=True,
            )
            yield Placement(meeting, addresses, places, hosts, [keeper] if experiment.ranks > 1 else [])


def keep_meeting(arguments: Mapping[str, Any]) -> int:
    """A process that does nothing but hold a meeting, until it is ended."""
    meeting = build(Meeting, arguments)
    with hold_meeting(meeting.address, meeting.port):
        while True:
            signal.pause()


def coordinator_file(run: Path) -> Path:
    """The coordinator's memory, which also says where it listens."""
    return run / "coordinator.json"


def _coordinator(
    experiment: Experiment,
    run: Path,
    token: str,
    address: str,
    place: Mapping[str, Any] | None = None,
    *,
    listening: Listening | None = None,
) -> Job:
    """Who keeps the roster of a run, outside of all ranks. It may be started again when it has died."""
    cluster = experiment.cluster
    rules = Rules(
        expect=experiment.ranks,
        min_nodes=cluster.min_nodes,
        min_servers=experiment.chosen_strategy.traits.servers,  # each has a part that nobody else has
        heartbeat_seconds=min(1.0, cluster.heartbeat_timeout_seconds / 5),
        heartbeat_timeout_seconds=cluster.heartbeat_timeout_seconds,
        progress_timeout_seconds=cluster.heartbeat_timeout_seconds,
    )
    others: dict[str, Any] = {"port": cluster.port}
    if listening is not None:
        others = {
            "port": listening.port,
            "tls": listening.tls,
            "description": experiment.to_toml(),
            "own": (*range(listening.here), *range(cluster.nodes, experiment.ranks)),  # servers are here too
            "events": run / "events",
            "abandoned_seconds": _ABANDONED_SECONDS,
        }
    return Job(
        name=COORDINATOR,
        function="minga.membership.coordinator:main",
        order=CoordinatorOrder(
            state=coordinator_file(run), run=run.name, token=token, rules=rules, address=address, **others
        ),
        log=str(run / "logs" / "coordinator.log"),
        place=place,
        # Where others listen too, it ends when everybody has: they may go on after those who train here.
        helper=listening is None,
    )
