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

from minga.base.rate_limit import RateLimit
from minga.errors import DataError, MingaError, RankFailed, Refused, RunError, RunStopped, WorkloadError
from minga.launch.listening import Listening
from minga.launch.placement import COORDINATOR, coordinator_file, host_ranks, hosting
from minga.launch.processes import Job, Processes, processes
from minga.launch.rank import LEFT_BEHIND, STOPPED
from minga.launch.restarts import Restarts
from minga.measure.event_reader import events_of
from minga.measure.events import Failed
from minga.membership.coordinator_process import ABANDONED
from minga.membership.state_file import load as load_state
from minga.runs.directory import log_file, server_folder
from minga.runs.experiment import Experiment
from minga.training.checkpoints.files import list_checkpoints

__all__ = ["launch_local", "see_through", "stop_when_asked"]

_TICK_SECONDS = 0.1
# After a failure, the other ranks get this long to tell theirs: the cause may be among them.
_LAST_WORDS_SECONDS = 1.0
# The exit code of a rank that was asked to stop, and how long ranks have for their last checkpoint.
_STOP_SECONDS = 60.0
# When all members have finished, a process that is still there was none of them any more.
_LEFT_OVER_SECONDS = 5.0
# A coordinator that dies more often than this in an hour has another problem.
_MOST_RESTARTS, _RESTART_SECONDS = 20, 3600.0


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
    nodes = experiment.cluster.nodes
    hosted = host_ranks(experiment)
    if listening is not None:
        hosted = [ranks for index, ranks in enumerate(hosted) if index < listening.here or min(ranks) >= nodes]
    with stop as stopping, hosting(experiment, run, elastic=experiment.elastic, listening=listening) as where:
        shutil.rmtree(server_folder(run), ignore_errors=True)  # of another session of this run
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
                    "listening": listening is not None,
                    "tls": listening.tls if listening is not None else None,
                },
                log=str(log_file(run, ranks[0])),
                place=where.places[index],
            )
            for index, ranks in enumerate(hosted)
        ]
        revival = None
        if experiment.elastic:
            revival = Restarts(
                needed=[job for job, ranks in zip(jobs, hosted, strict=True) if max(ranks) >= nodes],
                # Where others may join, those who are here need not be the last ones.
                workers={job.name for job, ranks in zip(jobs, hosted, strict=True) if min(ranks) < nodes}
                if listening is None
                else {"others"},
                expected=jobs,
                fewest=experiment.cluster.min_nodes if listening is None else 1,
                stopped_seconds=experiment.cluster.heartbeat_timeout_seconds,
            )
        if listening is not None:
            tick = _telling(listening, run, tick)
        with processes([*where.helpers, *jobs], run / "logs" / "fork-server.log") as started:
            see_through(started, run, tick, stopping, helpers=where.helpers, revival=revival)


def _telling(listening: Listening, run: Path, tick: Callable[[], None]) -> Callable[[], None]:
    """A tick that tells once where the coordinator listens, as soon as it does."""
    told = False

    def tell() -> None:
        nonlocal told
        if not told and (state := load_state(coordinator_file(run))) is not None:
            told = True
            listening.told(state.address, state.port)
        tick()

    return tell


def see_through(
    started: Processes,
    run: Path,
    tick: Callable[[], None],
    stopping: Callable[[], int] = lambda: 0,
    *,
    helpers: Sequence[Job] = (),
    revival: Restarts | None = None,
) -> None:
    """Wait until all processes have ended well; one that ends badly ends the run.

    When `stopping` gets true, ranks are asked to stop, and get some time for that. `revival`: a rank that is killed
    does not end the run as long as there are others; a server, or a coordinator among the `helpers`, is started again,
    and so is any rank before the run has begun.
    """
    failed: dict[str, int] = {}
    killed: dict[str, int] = {}
    told: set[str] = set()
    coordinator = next((job for job in helpers if job.name == COORDINATOR), None)
    restarts = RateLimit(_MOST_RESTARTS, seconds=_RESTART_SECONDS)
    stopped = done = over = False
    deadline = float("inf")
    while started.running and time.monotonic() < deadline:
        for name, code in started.wait(_TICK_SECONDS):
            if coordinator is not None and name == COORDINATOR:
                never = code not in (0, ABANDONED) and load_state(coordinator_file(run)) is None
                if never:  # it can't even begin, as where its port is taken
                    failed[name] = code
                    deadline = min(deadline, time.monotonic() + _LAST_WORDS_SECONDS)
                elif code not in (0, ABANDONED) and restarts.take():
                    started.start(coordinator)
                elif code not in (0, ABANDONED) and not coordinator.helper:
                    failed[name] = code
                over = code == 0  # all members have finished
                done = done or (code == 0 and not coordinator.helper)  # others, elsewhere, have come to the end
            elif code == 0:
                done = True
            elif code == STOPPED:
                stopped = True
            elif revival is not None and (code < 0 or code == LEFT_BEHIND):
                killed[name] = code
                if not done and not stopping() and not _has_begun(run):
                    if revival.start_again_early(started, name):
                        del killed[name]
                    else:  # the others would wait for it in vain
                        deadline = min(deadline, time.monotonic() + _LAST_WORDS_SECONDS)
                elif not done and not stopping() and revival.start_again(started, name):
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
        if (stopped or stopping()) and not any(name.startswith("rank ") for name in started.names):
            break  # a coordinator for others has nothing to wait for
        if revival is not None:
            revival.end_stopped(started)
            if over and done:
                # Whoever is stopped or cut off is not in the run any more, and may never come back to hear of it.
                patience = 0.0 if revival.is_left_over(started.names) else _LEFT_OVER_SECONDS
                deadline = min(deadline, time.monotonic() + patience)
        tick()
    if stopping() or (stopped and not failed):
        raise _stopped(run)
    if failed or (killed and not done):
        if not failed and revival is not None and revival.in_vain(killed) and (left := revival.left(killed)):
            raise RunError(
                f"{left} of the nodes {'is' if left == 1 else 'are'} left, fewer than --min-nodes, and nobody can join "
                f"a run without --listen{_how_to_go_on(run)}"
            )
        raise _cause(failed or killed, run)


def _has_begun(run: Path) -> bool:
    """Whether all that were expected have been there together."""
    state = load_state(coordinator_file(run))
    return state is not None and state.roster.generation is not None


@contextlib.contextmanager
def stop_when_asked(*signals: signal.Signals) -> Iterator[Callable[[], int]]:
    """Until the block ends, signals ask the run to stop instead of ending this process; which one has come.

    By default SIGTERM, and SIGHUP of a terminal that is closed, unless somebody (nohup) has said to go on then.
    """
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's business
        yield lambda: 0
        return
    asked: list[int] = []
    terminals = [stream for stream in (1, 2) if os.isatty(stream)]  # one that is gone does not say what it was

    def ask(number: int, frame: object) -> None:
        asked.append(number)
        if number == signal.SIGHUP:
            _write_nowhere(terminals)

    chosen = signals or (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, ask) for number in chosen if signal.getsignal(number) is not signal.SIG_IGN}
    try:
        yield lambda: asked[0] if asked else 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write_nowhere(streams: Sequence[int]) -> None:
    """Their terminal is gone: writing to it would fail, in the middle of what is still to be done."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream)
    os.close(nowhere)


def _stopped(run: Path) -> RunStopped:
    how = _how_to_go_on(run)
    return RunStopped(
        f"the run was asked to stop{how}" if how else "the run was asked to stop before it had a checkpoint"
    )


def _how_to_go_on(run: Path) -> str:
    """In words, if there is a checkpoint."""
    whole = [checkpoint for checkpoint in list_checkpoints(run) if checkpoint.complete]
    return f"; it goes on from {whole[-1].name} with: minga train --resume {run}" if whole else ""


def _cause(failed: Mapping[str, int], run: Path) -> Exception:
    """The one error that the others follow from."""
    told = events_of(run, Failed)
    # A rank that ended without a word (killed, crashed) is a cause too, where all words are consequences.
    causes = [event for event in told if not event.consequence]
    if causes:
        return _from_event(min(causes, key=lambda event: event.time))
    silent = {name: code for name, code in failed.items() if name not in _names(told)}
    if silent:
        name, code = next(iter(silent.items()))
        return _from_code(name, code, run)
    return _from_event(min(told, key=lambda event: event.time))


def _rank(name: str) -> int:
    """-1 for a helper."""
    return int(name.removeprefix("rank ")) if name.startswith("rank ") else -1


def _names(told: list[Failed]) -> set[str]:
    return {f"rank {event.rank}" for event in told}


def _from_event(event: Failed) -> Exception:
    # The same on every rank, so that it does not matter which one said it first; or the only one that is here.
    plain: dict[str, type[MingaError]] = {"WorkloadError": WorkloadError, "DataError": DataError, "Refused": Refused}
    if event.kind in plain:
        return plain[event.kind](event.message)
    when = f" at step {event.step}" if event.step else ""
    kind = f"{event.kind}: " if event.traceback else ""
    text = f"rank {event.rank} failed{when}: {kind}{event.message}"
    return RankFailed(text, rank=event.rank, traceback=event.traceback)


def _from_code(name: str, code: int, run: Path) -> RunError:
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    log = log_file(run, _rank(name)) if _rank(name) >= 0 else run / "logs" / f"{name}.log"
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:] if log.is_file() else []
    words = "\n".join(["; its last words:", *last]) if last else " without a word"
    hint = " (out of memory?)" if code == -signal.SIGKILL else ""
    return RankFailed(f"{name} {how}{hint}{words}", rank=_rank(name))
