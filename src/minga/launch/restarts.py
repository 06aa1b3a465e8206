"""Processes that a run can't do without are started again: servers, which come back with what is on their disk.

    revival = Restarts(needed=[job_of_a_server], workers={"rank 0", "rank 1"})
    revival.start_again(started, "rank 2")           # whether it was

Workers that are killed are not: the others go on without them. Before they have begun they can't, and wait for all
that were expected; until then nobody has anything to lose, so whoever is killed is started again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from minga.base.rate_limit import RateLimit
from minga.launch.processes import Job, Processes

__all__ = ["Restarts"]

# A process that dies more often than this in an hour has another problem.
_MOST_STARTS, _STARTS_SECONDS = 20, 3600.0
# Before the run has begun: one that dies each time, for lack of memory for instance, would never let it.
_MOST_EARLY_STARTS = 3
_LOOK_SECONDS = 0.5


class Restarts:
    """Which processes are started again, and how often."""

    def __init__(
        self,
        needed: Iterable[Job],
        workers: Collection[str],
        *,
        expected: Iterable[Job] = (),
        fewest: int = 1,
        stopped_seconds: float = 5.0,
    ) -> None:
        """`workers`: names of all processes that train; `fewest`: with less of them nobody goes on.

        `expected`: those that the run does not begin without; `stopped_seconds`: how long a needed one may be stopped.
        """
        self._needed = {job.name: job for job in needed}
        self._expected = {job.name: job for job in expected}
        self._early_starts: Counter[str] = Counter()
        self._workers = set(workers)
        self._fewest = fewest
        self._stopped_seconds = stopped_seconds
        self._starts: dict[str, RateLimit] = {}
        self._looked = 0.0
        self._stopped_since: dict[str, float] = {}

    def start_again(self, started: Processes, name: str) -> bool:
        """If it is needed, and this may still help."""
        job = self._needed.get(name)
        if job is None:
            return False
        if not self._starts.setdefault(name, RateLimit(_MOST_STARTS, seconds=_STARTS_SECONDS)).take():
            return False
        self._stopped_since.pop(name, None)
        started.start(replace(job, arguments={**job.arguments, "again": True}))
        return True

    def start_again_early(self, started: Processes, name: str) -> bool:
        """Before the run has begun: nobody has done anything yet that could be lost."""
        job = self._expected.get(name)
        if job is None or self._early_starts[name] == _MOST_EARLY_STARTS:
            return False
        self._early_starts[name] += 1
        started.start(job)
        return True

    def is_left_over(self, names: Collection[str]) -> bool:
        """Whether all of these were started again; when the others are done, nobody needs them."""
        return set(names) <= set(self._starts)

    def in_vain(self, killed: Collection[str]) -> bool:
        """Whether too few are left who train."""
        return self.left(killed) < self._fewest

    def left(self, killed: Collection[str]) -> int:
        """How many processes that train are left."""
        return len(self._workers - set(killed))

    def end_stopped(self, started: Processes) -> None:
        """A server that is stopped (SIGSTOP) holds everybody up: a new process can do its work."""
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        for name in self._needed:
            pid = started.pid_of(name)
            if pid is None or not _is_stopped(pid):
                self._stopped_since.pop(name, None)
            elif now - self._stopped_since.setdefault(name, now) > self._stopped_seconds:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _is_stopped(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state == "T"
