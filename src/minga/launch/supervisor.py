"""Sees a run's processes through to their end: `policy` says what is done when one ends, this does it.

with stop_when_asked() as stopping:     # signals to this process stop the run
    Supervisor(run, jobs, stopping=stopping).supervise(tick)    # until all are done; raises what others follow from
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from minga.base.rate_limit import RateLimit
from minga.errors import DataError, MingaError, RankFailed, Refused, RunError, RunStopped, StrategyError, WorkloadError
from minga.launch.orders import RankOrder
from minga.launch.placement import coordinator_file
from minga.launch.policy import Action, How, Phase, Who, action, how_of
from minga.launch.processes import ForkServerEnded, Job, JobEnded, Processes, processes
from minga.measure.event_reader import events_of
from minga.measure.events import Failed
from minga.membership.state_file import load as load_state
from minga.training.checkpoints.files import list_checkpoints

__all__ = ["Supervisor", "stop_when_asked"]

_TICK_SECONDS = 0.1
# After a failure, the other ranks get this long to say why they failed: the cause may be among them.
_AFTER_FAILURE_SECONDS = 1.0
# How long ranks that were asked to stop have for their last checkpoint.
_STOP_SECONDS = 60.0
# When all members have finished, a process that is still there was none of them any more.
_LEFT_OVER_SECONDS = 5.0
# A process that dies more often than this in an hour has another problem.
_MOST_RESTARTS, _RESTART_SECONDS = 20, 3600.0
# Before the run has begun: one that dies each time, for lack of memory for instance, would never let it.
_MOST_EARLY_RESTARTS = 3
_LOOK_SECONDS = 0.5
# The same on every rank, so that it does not matter which one said it first; or of the only one that is here.
_SAME_EVERYWHERE: dict[str, type[MingaError]] = {
    kind.__name__: kind for kind in (WorkloadError, DataError, Refused, StrategyError)
}


class Supervisor:
    """Of the processes of one run."""

    def __init__(
        self,
        run: Path,
        jobs: Iterable[Job],
        *,
        roles: Mapping[str, Who] | None = None,
        workers: Collection[str] = (),
        fewest: int = 0,
        stopped_seconds: float = 5.0,
        stopping: Callable[[], int] = lambda: 0,
    ) -> None:
        """`roles`: what each job is to the run, by names (default: a helper, or a rank of a group that stays as it is).

        `workers`: names of those that train; with less than `fewest` of them nobody goes on. `stopped_seconds`: how
        long a server may be stopped by a signal. `stopping`: whether the run was asked to stop.
        """
        self._run = run
        self._jobs = {job.name: job for job in jobs}
        self._roles = {name: Who.HELPER if job.helper else Who.RANK for name, job in self._jobs.items()} | dict(
            roles or {}
        )
        self._forms = bool({Who.COORDINATOR, Who.OPEN_COORDINATOR} & set(self._roles.values()))
        self._workers = frozenset(workers)
        self._fewest = fewest
        self._stopped_seconds = stopped_seconds
        self._asked = stopping
        self._failed: dict[str, int] = {}
        self._lost: dict[str, int] = {}
        self._done = self._stopped = self._all_finished = False
        self._deadline = float("inf")
        self._notified: set[str] = set()
        self._restarts: dict[str, RateLimit] = {}
        self._early_restarts: Counter[str] = Counter()
        self._looked = 0.0
        self._stopped_since: dict[str, float] = {}
        self._started: Processes

    def supervise(self, tick: Callable[[], None] = lambda: None) -> None:
        """Until all processes have ended well; raises if the run has not. `tick`: called a few times a second."""
        with processes(list(self._jobs.values()), self._run / "logs" / "fork-server.log") as self._started:
            try:
                self._wait(tick)
            except ForkServerEnded as error:
                raise RunError(f"{error}{_how_to_go_on(self._run)}") from None
        if self._asked() or (self._stopped and not self._failed):
            raise _run_stopped(self._run)
        if self._failed:
            raise self._cause(self._failed)
        if self._lost and not self._done:
            raise _too_few(self._left, self._run) if 0 < self._left < self._fewest else self._cause(self._lost)

    def _wait(self, tick: Callable[[], None]) -> None:
        while self._started.running and time.monotonic() < self._deadline:
            for ended in self._started.wait(_TICK_SECONDS):
                self._react(ended)
            if self._asked():
                self._pass_on_stop()
            if (self._stopped or self._asked()) and not any(_rank_of(name) >= 0 for name in self._started.awaited):
                break  # a coordinator for others has nothing to wait for
            self._kill_stopped_servers()
            if self._all_finished and self._done:
                # Whoever is stopped or cut off is not in the run any more, and may never come back to hear of it.
                substitutes = all(self._roles[name] is Who.SUBSTITUTE for name in self._started.awaited)
                self._end_within(0.0 if substitutes else _LEFT_OVER_SECONDS)
            tick()

    @property
    def _phase(self) -> Phase:
        if self._asked():
            return Phase.STOPPING
        if self._done:
            return Phase.DONE
        state = load_state(coordinator_file(self._run)) if self._forms else None
        if self._forms and (state is None or state.roster.generation is None):
            return Phase.FORMING
        return Phase.RUNNING

    def _react(self, ended: JobEnded) -> None:
        who, how, phase = self._roles[ended.name], how_of(ended.code), self._phase
        todo = action(who, how, phase)
        if todo in (Action.RESTART, Action.RESTART_OR_GO_ON):
            if self._restart(ended.name, phase):
                return
            todo = Action.FAIL if todo is Action.RESTART else Action.GO_ON
        if who in (Who.COORDINATOR, Who.OPEN_COORDINATOR) and how is How.DONE:
            self._all_finished = True
        if todo is Action.FINISH:
            self._done = True
        elif todo is Action.STOP:
            self._stopped = True
        elif todo is Action.FAIL:
            self._failed[ended.name] = ended.code
            self._end_within(_AFTER_FAILURE_SECONDS)
        elif _rank_of(ended.name) >= 0:
            self._lost[ended.name] = ended.code
            if self._left < self._fewest:  # servers alone would wait for ever
                self._end_within(_AFTER_FAILURE_SECONDS)

    @property
    def _left(self) -> int:
        """How many processes that train are left."""
        return len(self._workers - set(self._lost))

    def _end_within(self, seconds: float) -> None:
        self._deadline = min(self._deadline, time.monotonic() + seconds)

    def _restart(self, name: str, phase: Phase) -> bool:
        """Whether it was not done too often."""
        job = self._jobs[name]
        if phase is Phase.FORMING:
            self._early_restarts[name] += 1
            if self._early_restarts[name] > _MOST_EARLY_RESTARTS:
                return False
        elif not self._restarts.setdefault(name, RateLimit(_MOST_RESTARTS, seconds=_RESTART_SECONDS)).take():
            return False
        elif isinstance(job.order, RankOrder):
            job, self._roles[name] = replace(job, order=job.order.again()), Who.SUBSTITUTE
        self._stopped_since.pop(name, None)
        self._started.start(job)
        return True

    def _pass_on_stop(self) -> None:
        if not self._notified:
            self._end_within(_STOP_SECONDS)
        for name in set(self._started.pids) - self._notified:
            self._notified.add(name)
            if _rank_of(name) >= 0:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._started.pids[name], signal.SIGTERM)

    def _kill_stopped_servers(self) -> None:
        """A server that is stopped (SIGSTOP) holds everybody up: a new process can do its work."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        for name, who in self._roles.items():
            if who not in (Who.SERVER, Who.SUBSTITUTE):
                continue
            pid = self._started.pids.get(name)
            if pid is None or not _is_stopped(pid):
                self._stopped_since.pop(name, None)
            elif now - self._stopped_since.setdefault(name, now) > self._stopped_seconds:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _cause(self, failed: Mapping[str, int]) -> Exception:
        """By what the ranks have written down, and by how their processes have ended: exit codes by their names."""
        events = events_of(self._run, Failed)
        # A rank that ended without an event (killed, crashed) is a cause too, where all events are consequences.
        causes = [event for event in events if not event.consequence]
        if not causes:
            recorded = {f"rank {event.rank}" for event in events}
            for name, code in failed.items():
                if name not in recorded:
                    return _from_code(self._jobs[name], code)
        return _from_event(min(causes or events, key=lambda event: event.time))


def _is_stopped(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return False


def _run_stopped(run: Path) -> RunStopped:
    """It was asked to."""
    how = _how_to_go_on(run)
    return RunStopped(
        f"the run was asked to stop{how}" if how else "the run was asked to stop before it had a checkpoint"
    )


def _too_few(left: int, run: Path) -> RunError:
    """Some are left, who could only wait for others."""
    return RunError(
        f"{left} of the nodes {'is' if left == 1 else 'are'} left, fewer than --min-nodes, and nobody can join "
        f"a run without --listen{_how_to_go_on(run)}"
    )


def _rank_of(name: str) -> int:
    """The rank that a process is named after; -1 for a helper."""
    return int(name.removeprefix("rank ")) if name.startswith("rank ") else -1


def _how_to_go_on(run: Path) -> str:
    """A sentence, if there is a checkpoint."""
    whole = [checkpoint for checkpoint in list_checkpoints(run) if checkpoint.complete]
    return f"; it goes on from {whole[-1].name} with: minga train --resume {run}" if whole else ""


def _from_event(event: Failed) -> Exception:
    if event.kind in _SAME_EVERYWHERE:
        return _SAME_EVERYWHERE[event.kind](event.message)
    when = f" at step {event.step}" if event.step else ""
    kind = f"{event.kind}: " if event.traceback else ""
    text = f"rank {event.rank} failed{when}: {kind}{event.message}"
    return RankFailed(text, rank=event.rank, traceback=event.traceback)


def _from_code(job: Job, code: int) -> RunError:
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    log = Path(job.log)
    last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:] if log.is_file() else []
    lines = "\n".join(["; the end of its log:", *last]) if last else "; its log is empty"
    hint = " (out of memory?)" if code == -signal.SIGKILL else ""
    return RankFailed(f"{job.name} {how}{hint}{lines}", rank=_rank_of(job.name))


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
