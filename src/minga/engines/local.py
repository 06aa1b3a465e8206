"""`run(experiment)`: the one way in, for Python, the command line and everything built on them."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

from minga.base.spec import describe
from minga.engines.checks import check
from minga.errors import ConfigError
from minga.launch.listening import Listening, prepared
from minga.launch.orders import MemberOrder, RankOrder
from minga.launch.placement import COORDINATOR, Placement, coordinator_file, host_ranks, placed
from minga.launch.policy import Who
from minga.launch.processes import Job
from minga.launch.supervisor import Supervisor, stop_when_asked
from minga.measure.counters import machine_power
from minga.membership.state_file import load as load_state
from minga.model.weights import check_weights
from minga.report.live import View, in_notebook, live_view
from minga.report.summary import Summary, summarise
from minga.runs.directory import alone_in, log_file, make_run_directory, server_folder
from minga.runs.experiment import Experiment, load
from minga.training.checkpoints.files import Manifest
from minga.training.checkpoints.resume import find_last_good, next_session, rewind_events, set_later_aside

__all__ = ["go_on", "run"]


def run(experiment: Experiment, view: View | None = None, *, listening: Listening | None = None) -> Summary:
    """Train as the experiment says; what came out. The run's directory has everything else.

    `view`: what is seen meanwhile; None: nothing, or in a notebook a cell that changes (`View()`: nothing at all).
    `listening`: with nodes of other machines, which join (`minga join`, `engines.joining.join_run`).
    """
    if view is None and in_notebook():
        with live_view() as shown:
            return run(experiment, shown, listening=listening)
    if listening is not None:
        experiment = prepared(experiment, listening)
    check(experiment, here=None if listening is None else listening.here)
    if experiment.training.start_from is not None:  # once it has begun, a run needs them no more
        check_weights(Path(experiment.training.start_from))
    directory = make_run_directory(experiment)
    with alone_in(directory):
        return _train(experiment, directory, view or View(), listening=listening)


def go_on(
    directory: Path,
    experiment: Experiment | None = None,
    view: View | None = None,
    *,
    listening: Listening | None = None,
) -> Summary:
    """Go on with a run from its last good checkpoint, as its own experiment says or another of the same workload."""
    directory = directory.expanduser().resolve()
    if not (directory / "experiment.toml").is_file():
        raise ConfigError(f"{directory} is no directory of a run: it has no experiment.toml")
    before = load(directory / "experiment.toml")
    experiment = experiment or before
    if listening is not None:
        experiment = prepared(experiment, listening)
    check(experiment, here=None if listening is None else listening.here)
    if experiment.workload != before.workload:
        raise ConfigError(f"{directory} is a run of {before.workload}, not of {experiment.workload}")
    if not experiment.checkpoints.enabled:
        raise ConfigError("checkpoints are turned off: a run that goes on needs them")
    with alone_in(directory):
        checkpoint = find_last_good(directory)
        _check_end(experiment, checkpoint.manifest(0))
        set_later_aside(directory, checkpoint)
        rewind_events(directory, checkpoint)
        if experiment != before:
            (directory / "experiment.toml").write_text(experiment.to_toml(), encoding="utf-8")
        return _train(experiment, directory, view or View(), resume=checkpoint.name, listening=listening)


def _check_end(experiment: Experiment, reached: Manifest) -> None:
    """`ConfigError` if training should end before where it is already: nothing would be trained, and all seem well."""
    training = experiment.training
    if training.steps is not None and reached.step > training.steps:
        raise ConfigError(f"the run has come to step {reached.step} already; --steps {training.steps} lies before that")
    if training.epochs is not None and (reached.epoch, reached.offset) > (training.epochs, 0):
        raise ConfigError(f"the run is in epoch {reached.epoch + 1} already; --epochs {training.epochs} lies before it")


def _train(
    experiment: Experiment,
    directory: Path,
    view: View,
    *,
    resume: str | None = None,
    listening: Listening | None = None,
) -> Summary:
    nodes = experiment.cluster.nodes
    strategy = describe(experiment.chosen_strategy)
    title = f"{experiment.workload}, {nodes} node{'s' if nodes > 1 else ''}, {strategy}"
    view.begin(directory, title)
    interval, gpus = experiment.measuring.interval_seconds, experiment.cluster.device == "cuda"
    with machine_power(directory, interval_seconds=interval, gpus=gpus):
        _run_processes(experiment, directory, view.tick, resume, next_session(directory), listening)
    summary = summarise(directory)
    assert summary is not None, "every rank ended well, yet none began"
    return summary


def _run_processes(
    experiment: Experiment,
    run: Path,
    tick: Callable[[], None],
    resume: str | None,
    session: int,
    listening: Listening | None,
) -> None:
    """Until all ranks are done; raises if one fails. SIGTERM has them take a checkpoint and stop: `RunStopped`.

    `resume`: the name of the checkpoint to go on from. `listening`: only some of the ranks are here.
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
            roles[COORDINATOR] = Who.COORDINATOR if listening is None else Who.OPEN_COORDINATOR
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
