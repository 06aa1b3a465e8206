"""A run as processes on this machine, on its loopback or on hosts of a lab."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

from minga.launch.listening import Listening
from minga.launch.orders import MemberOrder, RankOrder
from minga.launch.placement import COORDINATOR, Placement, coordinator_file, host_ranks, placed
from minga.launch.policy import Who
from minga.launch.processes import Job
from minga.launch.supervisor import Supervisor, stop_when_asked
from minga.membership.state_file import load as load_state
from minga.runs.directory import log_file, server_folder
from minga.runs.experiment import Experiment

__all__ = ["launch_local"]


def launch_local(
    experiment: Experiment,
    run: Path,
    tick: Callable[[], None],
    *,
    resume: str | None = None,
    session: int = 0,
    listening: Listening | None = None,
) -> None:
    """Train; returns when all ranks are done, raises if one fails. `tick` is called a few times a second.

    `resume`: the name of the checkpoint to go on from. SIGTERM has the ranks take a checkpoint and stop: `RunStopped`.
    `listening`: only some of the ranks are here, and others come from elsewhere.
    """
    stop = stop_when_asked() if experiment.checkpoints.enabled else contextlib.nullcontext(lambda: 0)
    nodes, elastic = experiment.cluster.nodes, experiment.elastic
    hosted = list(enumerate(host_ranks(experiment)))
    if listening is not None:
        hosted = [(host, ranks) for host, ranks in hosted if host < listening.here or min(ranks) >= nodes]
        tick = _notifying(listening, run, tick)
    with stop as stopping, placed(experiment, run, elastic=elastic, listening=listening) as placement:
        shutil.rmtree(server_folder(run), ignore_errors=True)  # of another session of this run
        jobs = [
            Job(
                name=f"rank {ranks[0]}",
                function="minga.launch.rank:main",
                order=RankOrder(
                    run=run,
                    ranks=tuple(ranks),
                    address=placement.addresses[host],
                    meeting=placement.meeting,
                    roster=_roster_entry(run, ranks, placement, listening),
                    resume=resume,
                    session=session,
                ),
                log=str(log_file(run, ranks[0])),
                place=placement.places[host],
            )
            for host, ranks in hosted
        ]
        roles = {}
        if elastic:
            roles = {f"rank {ranks[0]}": Who.SERVER if max(ranks) >= nodes else Who.WORKER for _, ranks in hosted}
            roles[COORDINATOR] = Who.COORDINATOR if listening is None else Who.HOST
        supervisor = Supervisor(
            run,
            [*placement.helpers, *jobs],
            roles=roles,
            workers=[f"rank {ranks[0]}" for _, ranks in hosted if min(ranks) < nodes],
            # Where others may join, those who are here need not be the last ones.
            fewest=experiment.cluster.min_nodes if elastic and listening is None else 0,
            stopped_seconds=experiment.cluster.heartbeat_timeout_seconds,
            stopping=stopping,
        )
        supervisor.supervise(tick)


def _roster_entry(run: Path, ranks: list[int], placement: Placement, listening: Listening | None) -> MemberOrder | None:
    if placement.token is None:
        return None
    return MemberOrder(
        run=run.name,
        token=placement.token,
        hosts=tuple(placement.hosts[rank] for rank in ranks),
        listening=listening is not None,
        tls=listening.tls if listening is not None else None,
    )


def _notifying(listening: Listening, run: Path, tick: Callable[[], None]) -> Callable[[], None]:
    """A tick that says once where the coordinator listens, as soon as it does."""
    notified = False

    def notify() -> None:
        nonlocal notified
        if not notified and (state := load_state(coordinator_file(run))) is not None:
            notified = True
            listening.when_listening(state.address, state.port)
        tick()

    return notify
