"""What transports between threads and processes have in common: the clock of this machine, and a thread for jobs."""

from __future__ import annotations

import copy
import queue
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Self

from minga.comm.transport import Pending, Transport
from minga.errors import PeerLost, PeerTimeout

__all__ = ["BackgroundThread", "RealTimeTransport"]


class RealTimeTransport(Transport):
    """In which seconds are seconds, and what `start` runs really runs beside the caller."""

    def __init__(self, rank: int, size: int, hosts: Sequence[str] | None, timeout_seconds: float) -> None:
        self.rank = rank
        self.size = size
        self.hosts = list(hosts) if hosts is not None else ["localhost"] * size
        self._offset = 0
        """Added to all tags."""
        self._background = BackgroundThread(rank, timeout_seconds * 2)

    @abstractmethod
    def beside(self) -> Transport:
        """The same rank with messages of its own, which never meet the caller's: what a job gets."""

    def _above(self, offset: int) -> Self:
        """The same connections for messages whose tags lie above those of others."""
        other = copy.copy(self)
        other._offset += offset
        return other

    def now(self) -> float:
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def start(self, function: Callable[[Transport], None]) -> Pending:
        background = self.beside()
        return self._background.submit(lambda: function(background))

    def close(self) -> None:
        self._background.close()


class BackgroundThread:
    """Runs jobs one after the other in a daemon thread (one that never keeps a failing process alive)."""

    def __init__(self, rank: int, seconds: float) -> None:
        self.rank = rank
        self.seconds = seconds
        """How long a job may take."""
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._unfinished: set[_Job] = set()
        self._aborted: PeerLost | None = None

    def submit(self, function: Callable[[], None]) -> Pending:
        if self._thread is None:
            name = f"minga-background-{self.rank}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        job = _Job(self, function)
        self._unfinished.add(job)
        self._jobs.put(job)
        if self._aborted is not None:
            job.end(self._aborted)
        return job

    def abort(self, error: PeerLost) -> None:
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


class _Job(Pending):
    def __init__(self, thread: BackgroundThread, function: Callable[[], None]) -> None:
        self._thread = thread
        self._function = function
        self._ending = threading.Lock()
        self._done = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        error: BaseException | None = None
        try:
            self._function()
        except BaseException as raised:
            error = raised
        self.end(error)

    def end(self, error: BaseException | None) -> None:
        """It is over; what comes after that changes nothing."""
        with self._ending:
            if not self._done.is_set():
                self._error = error
                self._done.set()

    def wait(self, patience: float = 1.0) -> int:
        # The job's own waits have deadlines and name the peer that is missing; this one only makes sure
        # that a job of many messages can't keep the caller for ever.
        seconds = self._thread.seconds * patience
        if not self._done.wait(seconds):
            raise PeerTimeout(f"rank {self._thread.rank}: a background exchange took over {seconds:g} s")
        if self._error is not None:
            raise self._error
        return self._thread.rank

    @property
    def done(self) -> bool:
        return self._done.is_set()
