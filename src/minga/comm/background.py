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
        self._ending = threading.Lock()
        self._done = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._function()
        except BaseException as error:
            self.end(error)
        else:
            self.end(None)

    def end(self, error: BaseException | None) -> None:
        """It is over; what comes after that changes nothing."""
        with self._ending:
            if not self._done.is_set():
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
        self._unfinished: set[_Job] = set()
        self._aborted: BaseException | None = None

    def submit(self, function: Callable[[], None]) -> Pending:
        if self._thread is None:
            name = f"minga-background-{self._rank}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        job = _Job(function, self._rank, self._seconds)
        self._unfinished.add(job)
        self._jobs.put(job)
        if self._aborted is not None:
            job.end(self._aborted)
        return job

    def abort(self, error: BaseException) -> None:
        """Every wait for a job raises `error`, now and later; the one that runs now is not interrupted by this."""
        self._aborted = error
        for job in list(self._unfinished):
            job.end(error)

    def close(self) -> None:
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(timeout=5)
            self._thread = None

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not job.done:
                job.run()
            self._unfinished.discard(job)
