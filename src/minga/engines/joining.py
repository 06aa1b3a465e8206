"""Taking part in a run of another machine, with one node.

    summary = join_run(Invitation(address="10.0.0.1", port=29600, token=token, data="/data"))

The run's description comes from its coordinator; nothing that is executed does. Workload and data are this machine's
own, and the coordinator refuses whoever has others than the rest.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import socket
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from minga.base.config import build
from minga.engines.checks import check
from minga.errors import ConfigError, MingaError, RunStopped
from minga.launch.orders import MemberOrder, RankOrder
from minga.launch.processes import Job
from minga.launch.supervisor import Supervisor, stop_when_asked
from minga.measure.counters import machine_power
from minga.measure.event_reader import events_of, read_events
from minga.measure.events import Started, Stopped
from minga.membership.messages import Description
from minga.membership.protocol import CoordinatorAddress
from minga.membership.visitors import ask, hand_over
from minga.net.interfaces import address_of, interface_towards
from minga.net.tls import load_tls
from minga.report.live import View
from minga.report.summary import Summary, summarise
from minga.runs.directory import event_file, log_file, make_run_directory
from minga.runs.experiment import Experiment

__all__ = ["Invitation", "join_run"]

_LOG = logging.getLogger("minga.launch")


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """What one has to know and to have to take part."""

    address: str
    port: int
    token: str = dataclasses.field(repr=False)
    data: str | None = None
    """The directory with data sets on this machine (default: the environment variable MINGA_DATA)."""
    workload: str | None = None
    """Where the workload's file is on this machine, if it is somewhere else than where the run was started."""
    name: str | None = None
    """Of this node (default: node-N, with a number that nobody has)."""
    interface: str | None = None
    """By which to go, and on whose address to listen for data (default: the one that leads to the coordinator)."""
    tls: str | None = None
    """The directory of this node's certificate."""
    runs: str = "runs"
    """The directory that gets a directory for this node's part of the run."""
    wait_seconds: float = 10.0
    """How long to try until somebody answers."""


def join_run(
    invitation: Invitation, view: View | None = None, *, when_known: Callable[[Path, str], None] = lambda run, id: None
) -> Summary | None:
    """Train until the run is over; what this node has seen of it, None if it never came to train.

    `when_known` is called with the directory and the node's id before it begins. SIGTERM and Ctrl-C have the node
    leave: the others go on, and here `RunStopped` or `KeyboardInterrupt` follows.
    """
    view = view or View()
    tls = load_tls(invitation.tls) if invitation.tls is not None else None
    own = address_of(invitation.interface) if invitation.interface else interface_towards(invitation.address).address
    where = CoordinatorAddress(
        address=invitation.address,
        port=invitation.port,
        token=invitation.token,
        tls=tls,
        source_address=own if invitation.interface else None,
    )
    description = ask(where, timeout_seconds=invitation.wait_seconds)
    experiment = _experiment(description, invitation)
    check(experiment, here=1)
    run = make_run_directory(experiment)
    id = invitation.name or f"node-{description.number}"
    when_known(run, id)
    job = Job(
        name=f"rank {description.number}",
        function="minga.launch.rank:main",
        order=RankOrder(
            run=run,
            ranks=(description.number,),
            address=own,
            roster=MemberOrder(
                run=description.run,
                token=invitation.token,
                start="joined",
                coordinator=(invitation.address, invitation.port),
                id=id,
                hosts=(os.environ.get("MINGA_HOST") or socket.gethostname(),),
                listening=True,
                interface=invitation.interface,
                tls=invitation.tls,
            ),
        ),
        log=str(log_file(run, description.number)),
    )
    view.begin(run, f"{experiment.workload}, {id} of {description.run}")
    interval, gpus = experiment.measuring.interval_seconds, experiment.cluster.device == "cuda"
    try:
        with machine_power(run, interval_seconds=interval, gpus=gpus):
            _train(job, run, view.tick)
    finally:
        _hand_over(where, id, description.number, event_file(run, description.number))
    return summarise(run)


def _train(job: Job, run: Path, tick: Callable[[], None]) -> None:
    with stop_when_asked(signal.SIGTERM, signal.SIGINT) as asked:
        try:
            Supervisor(run, [job], stopping=asked).supervise(tick)
        except RunStopped as stopped:
            if asked() == signal.SIGINT:
                raise KeyboardInterrupt from None
            if asked():
                raise RunStopped("asked to leave, and has left; the others go on") from None
            last = events_of(run, Stopped)[-1:]  # a rank that stopped of itself has said why
            raise RunStopped(last[0].reason if last else str(stopped)) from None


def _hand_over(where: CoordinatorAddress, id: str, number: int, file: Path) -> None:
    """Whatever became of this node: where the run was started they want to know what it did, if it did anything."""
    try:
        # One that was refused is not one that got lost, and why it ended is not why the run did.
        if file.is_file() and any(isinstance(event, Started) for event in read_events(file)):
            hand_over(where, id=id, number=number, file=file)
    except (MingaError, OSError) as error:  # that machine may be gone
        _LOG.warning("the events of %s stay here, in %s: %s", id, file, str(error) or type(error).__name__)


def _experiment(description: Description, invitation: Invitation) -> Experiment:
    """The run's experiment, with what is this machine's own."""
    text = "\n".join(description.lines)
    try:
        experiment = build(Experiment, tomllib.loads(text))
    except (ConfigError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"the description of {description.run} can't be used here: {error}; does this machine have the same "
            "version of Minga, and the files that it names?"
        ) from None
    workload = experiment.workload
    if invitation.workload is not None:
        path, _, name = workload.partition(":")
        given, _, given_name = invitation.workload.partition(":")
        if not path.endswith(".py"):
            raise ConfigError(f"the run trains {workload!r}, which is part of Minga; leave --workload out")
        workload = f"{given}:{given_name or name or 'workload'}"
    elif ".py" in workload and not Path(workload.partition(":")[0]).expanduser().is_file():
        raise ConfigError(
            f"the run trains {workload!r}, and there is no such file here (looked in {Path.cwd()}); copy it to this "
            "machine, and say where it is with --workload FILE.py"
        )
    return dataclasses.replace(experiment, workload=workload, data=invitation.data, runs=invitation.runs)
