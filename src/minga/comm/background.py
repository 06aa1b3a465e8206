"""One thread that runs jobs in order, for transports whose `start` really runs beside the caller."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from minga.comm.transport import Pending
from minga.errors import PeerTimeout

__all__ = ["BackgroundThread"]


class _Job(Pending):
    def __init__(self, function: Callable[[], None], rank: int, seconds: float) -> None:
        self._function = function
        self._rank = rank
        self._seconds = seconds
        self._done = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._function()
        except BaseException as error:
            self._error = error
        self._done.set()

    def wait(self, patience: float = 1.0) -> int:
        # The job's own waits have deadlines and name the peer that is missing; this one only makes sure
        # that a job of many messages can't keep the caller for ever.
        seconds = self._seconds * patience
        if not self._done.wait(seconds):
            raise PeerTimeout(f"rank {self._rank}: a background exchange took over {seconds:g} s")
        if self._error is not None:
            raise self._error
        return self._rank

    @property
    def done(self) -> bool:
        return self._done.is_set()


class BackgroundThread:
    """Runs jobs one after the other in a daemon thread (one that never keeps a failing process alive)."""

    def __init__(self, rank: int, seconds: float) -> None:
        self._rank = rank
        self._seconds = seconds
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, function: Callable[[], None]) -> Pending:
        if self._thread is None:
            name = f"minga-background-{self._rank}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        job = _Job(function, self._rank, self._seconds)
        self._jobs.put(job)
        return job

    def close(self) -> None:
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(timeout=5)
            self._thread = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
