"""A run as processes on this machine, on its loopback or on hosts of a lab."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from minga.checkpoints.files import list_checkpoints
from minga.errors import DataError, RankFailed, RunError, RunStopped, UsageError, WorkloadError
from minga.experiment import Experiment
from minga.launch.hosting import COORDINATOR, host_ranks, hosting
from minga.launch.processes import Job, Processes, processes
from minga.launch.revival import Revival
from minga.measure.events import event_files, read_events
from minga.run_directory import log_file, server_folder

__all__ = ["launch_local", "see_through", "stop_when_asked"]

_TICK_SECONDS = 0.1
# After a failure, the other ranks get this long to tell theirs: the cause may be among them.
_LAST_WORDS_SECONDS = 1.0
# The exit code of a rank that was asked to stop, and how long ranks have for their last checkpoint.
_STOPPED = 128 + signal.SIGTERM
_STOP_SECONDS = 60.0
# A coordinator that dies more often than this has another problem.
_MOST_RESTARTS = 20


def launch_local(
    experiment: Experiment, run: Path, tick: Callable[[], None], *, resume: str | None = None, session: int = 0
) -> None:
    """Train; returns when all ranks are done, raises if one fails. `tick` is called a few times a second.

    `resume`: the name of the checkpoint to go on from. SIGTERM has the ranks take a checkpoint and stop: `RunStopped`.
    """
    stop = stop_when_asked() if experiment.checkpoints.enabled else contextlib.nullcontext(lambda: False)
    with stop as stopping, hosting(experiment, run, elastic=experiment.elastic) as where:
        shutil.rmtree(server_folder(run), ignore_errors=True)  # of another session of this run
        hosted = host_ranks(experiment)
        jobs = [
            Job(
                name=f"rank {ranks[0]}",
                function="minga.launch.rank:main",
                arguments={
                    "run": str(run),
                    "ranks": ranks,
                    "meeting": where.meeting,
                    "address": where.addresses[index],
                    "hosts": where.hosts,
                    "resume": resume,
                    "session": session,
                    "token": where.token,
                },
                log=str(log_file(run, ranks[0])),
                place=where.places[index],
            )
            for index, ranks in enumerate(hosted)
        ]
        nodes, revival = experiment.cluster.nodes, None
        if experiment.elastic:
            revival = Revival(
                needed=[job for job, ranks in zip(jobs, hosted, strict=True) if max(ranks) >= nodes],
                workers={job.name for job, ranks in zip(jobs, hosted, strict=True) if min(ranks) < nodes},
                stopped_seconds=experiment.cluster.heartbeat_timeout_seconds,
            )
        with processes([*where.helpers, *jobs], run / "logs" / "fork-server.log") as started:
            see_through(started, run, tick, stopping, helpers=where.helpers, revival=revival)


def see_through(
    started: Processes,
    run: Path,
    tick: Callable[[], None],
    stopping: Callable[[], bool] = lambda: False,
    *,
    helpers: Sequence[Job] = (),
    revival: Revival | None = None,
) -> None:
    """Wait until all processes have ended well; one that ends badly ends the run.

    When `stopping` gets true, ranks are asked to stop, and get some time for that. `revival`: a rank that is killed
    does not end the run as long as there are others; a server, or a coordinator among the `helpers`, is started again.
    """
    failed: dict[str, int] = {}
    killed: dict[str, int] = {}
    told: set[str] = set()
    coordinator = next((job for job in helpers if job.name == COORDINATOR), None)
    restarts = 0
    stopped = done = over = False
    deadline = float("inf")
    while started.running and time.monotonic() < deadline:
        for name, code in started.wait(_TICK_SECONDS):
            if coordinator is not None and name == COORDINATOR:
                if code != 0 and restarts < _MOST_RESTARTS:
                    restarts += 1
                    started.start(coordinator)
                over = code == 0  # all members have finished
            elif code == 0:
                done = True
            elif code == _STOPPED:
                stopped = True
            elif revival is not None and code < 0:
                killed[name] = code
                if not done and not stopping() and revival.start_again(started, name):
                    del killed[name]
                elif revival.in_vain(killed):  # servers alone would wait for ever
                    deadline = min(deadline, time.monotonic() + _LAST_WORDS_SECONDS)
            elif revival is not None and done and revival.is_left_over([name]):
                continue
            else:
                failed[name] = code
                deadline = min(deadline, time.monotonic() + _LAST_WORDS_SECONDS)
        if stopping():
            deadline = min(deadline, time.monotonic() + _STOP_SECONDS) if not told else deadline
            for name in set(started.pids) - told:
                told.add(name)
                if name.startswith("rank "):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(started.pids[name], signal.SIGTERM)
        if revival is not None:
            revival.end_stopped(started)
            if over and done and revival.is_left_over(started.names):
                break
        tick()
    if stopping() or (stopped and not failed):
        raise _stopped(run)
    if failed or (killed and not done):
        raise _cause(failed or killed, run)


@contextlib.contextmanager
def stop_when_asked() -> Iterator[Callable[[], bool]]:
    """Until the block ends, SIGTERM asks the run to stop instead of ending this process."""
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's business
        yield lambda: False
        return
    asked: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGTERM, before)


def _stopped(run: Path) -> RunStopped:
    whole = [checkpoint for checkpoint in list_checkpoints(run) if checkpoint.complete]
    if not whole:
        return RunStopped("the run was asked to stop before it had a checkpoint")
    return RunStopped(f"the run was asked to stop; it goes on from {whole[-1].name} with: minga train --resume {run}")


def _cause(failed: Mapping[str, int], run: Path) -> Exception:
    """The one error that the others follow from."""
    told = [event for path in event_files(run) for event in read_events(path) if event["event"] == "failed"]
    # A rank that ended without a word (killed, crashed) is a cause too, where all words are consequences.
    causes = [event for event in told if not event["consequence"]]
    if causes:
        return _from_event(min(causes, key=lambda event: float(event["time"])))
    silent = {name: code for name, code in failed.items() if name not in _names(told)}
    if silent:
        name, code = next(iter(silent.items()))
        return _from_code(name, code, run)
    return _from_event(min(told, key=lambda event: float(event["time"])))


def _rank(name: str) -> int:
    """-1 for a helper."""
    return int(name.removeprefix("rank ")) if name.startswith("rank ") else -1


def _names(told: list[dict[str, Any]]) -> set[str]:
    return {f"rank {event['rank']}" for event in told}


def _from_event(event: Mapping[str, Any]) -> Exception:
    usage: dict[str, type[UsageError]] = {"WorkloadError": WorkloadError, "DataError": DataError}
    if event["kind"] in usage:  # the same on every rank: which one said it first does not matter
        return usage[event["kind"]](event["message"])
    when = f" at step {event['step']}" if event["step"] else ""
    kind = f"{event['kind']}: " if event["traceback"] else ""
    text = f"rank {event['rank']} failed{when}: {kind}{event['message']}"
    return RankFailed(text, rank=event["rank"], traceback=event["traceback"])


def _from_code(name: str, code: int, run: Path) -> RunError:
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    log = log_file(run, _rank(name)) if _rank(name) >= 0 else run / "logs" / f"{name}.log"
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:] if log.is_file() else []
    words = "\n".join(["; its last words:", *last]) if last else " without a word"
    hint = " (out of memory?)" if code == -signal.SIGKILL else ""
    return RankFailed(f"{name} {how}{hint}{words}", rank=_rank(name))
