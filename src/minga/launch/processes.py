"""The processes of one run, as the launcher sees them: start them, hear of their ends, end them all.

    with processes([Job(name="rank 0", function="minga.launch.rank:main", order=order, log="0.log")], log) as started:
        while started.running:
            for ended in started.wait(0.1): ...

The fork server starts them; between it and the launcher go lines of JSON: lists of jobs there, `JobStarted` and
`JobEnded` back.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from minga.base.config import Config
from minga.errors import RunError

__all__ = ["ForkServerEnded", "Job", "JobEnded", "JobStarted", "Processes", "processes"]

_GRACE_SECONDS = 0.5
# Each step takes and gives back the same memory. By default glibc returns large pieces to the kernel, which clears
# them anew for the next step: keeping them makes steps of a small network 5 to 20 % shorter.
_KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(256 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_TOP_PAD_": str(16 << 20),
}


@dataclass(frozen=True)
class Job:
    """One process: `function` is `module:name`, called with the order's fields; its result is the exit code."""

    name: str
    function: str
    order: Config | Mapping[str, Any]
    """What it is to do. It travels as JSON: the function builds it again, which checks it."""
    log: str
    show: bool = False
    """Whether its output goes to the launcher's own output instead of the log."""
    environment: Mapping[str, str] = field(default_factory=dict)
    place: Mapping[str, Any] | None = None
    """The host of a lab that it moves to; see `lab.namespaces.enter`."""
    helper: bool = False
    """Whether others need it, so that nobody waits for its end; it is ended with them."""


@dataclass(frozen=True)
class JobStarted:
    """A job runs."""

    name: str
    pid: int


@dataclass(frozen=True)
class JobEnded:
    """A job has ended."""

    name: str
    code: int
    """Minus the signal's number, if one ended it."""


class ForkServerEnded(RunError):
    """The fork server has ended by itself, and all processes that it has started with it."""

    def __init__(self, code: int | None, log: Path) -> None:
        how = f" by {signal.Signals(-code).name}" if code is not None and code < 0 else ""
        super().__init__(f"the fork server was ended{how}, and all processes of the run with it; its log is {log}")


class Processes:
    """Running jobs."""

    def __init__(self, guard: subprocess.Popen[bytes], log: Path) -> None:
        self._guard = guard
        self._log = log
        self.awaited: set[str] = set()
        """Names of the jobs that run, without helpers."""
        self._rest = b""
        assert guard.stdout is not None
        os.set_blocking(guard.stdout.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(guard.stdout, selectors.EVENT_READ)
        self.pids: dict[str, int] = {}
        """Of all that run, as far as is known."""

    @property
    def running(self) -> bool:
        return bool(self.awaited)

    def start(self, *jobs: Job) -> None:
        """Start jobs, also while others run; one that has ended may be started again."""
        self.awaited |= {job.name for job in jobs if not job.helper}
        assert self._guard.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # wait() raises then, with the log
            self._guard.stdin.write(json.dumps([asdict(job) for job in jobs], default=str).encode() + b"\n")
            self._guard.stdin.flush()

    def wait(self, seconds: float) -> list[JobEnded]:
        """The jobs that end within `seconds`."""
        ended: list[JobEnded] = []
        if self._selector.select(seconds):
            assert self._guard.stdout is not None
            chunk = self._guard.stdout.read() or b""
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "pid" in message:
                    started = JobStarted(**message)
                    self.pids[started.name] = started.pid
                else:
                    ended.append(JobEnded(**message))
                    self.pids.pop(ended[-1].name)
            self.awaited -= {each.name for each in ended}
            if not chunk and self.awaited:
                raise ForkServerEnded(self._guard.wait(), self._log)
        return ended

    def close(self) -> None:
        self._selector.close()


@contextlib.contextmanager
def processes(jobs: list[Job], log: Path) -> Iterator[Processes]:
    """Start jobs; whatever happens in the `with` block, none of them is left afterwards."""
    shown = {"MINGA_SHOW_OUTPUT": "1", "MINGA_SHOW_ERRORS": "2"}
    kept: list[int] = []
    if any(job.show for job in jobs):
        kept = [os.dup(1), os.dup(2)]
        shown = {"MINGA_SHOW_OUTPUT": str(kept[0]), "MINGA_SHOW_ERRORS": str(kept[1])}
    guard: subprocess.Popen[bytes] | None = None
    started: Processes | None = None
    try:
        with log.open("ab") as errors:
            guard = subprocess.Popen(
                [sys.executable, "-m", "minga.launch.fork_server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                pass_fds=kept,
                # Libraries that start threads when they are imported make forking unsafe; each job sets its number.
                # Warnings of torch's sockets about names of hosts in a lab would only puzzle people.
                env={
                    "TORCH_CPP_LOG_LEVEL": "ERROR",
                    **_KEEP_MEMORY,
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    "OPENBLAS_NUM_THREADS": "1",
                    **shown,
                },
                start_new_session=True,  # a group of its own: Ctrl-C reaches the launcher only, which ends the group
            )
        for descriptor in kept:
            os.close(descriptor)
        started = Processes(guard, log)
        started.start(*jobs)
        yield started
    finally:
        if started is not None:
            started.close()
        if guard is not None:
            _end(guard)


def _end(guard: subprocess.Popen[bytes]) -> None:
    """End the whole group at once: first politely, then for good."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(guard.pid, how)
        deadline = time.monotonic() + _GRACE_SECONDS
        while _group_lives(guard) and time.monotonic() < deadline:
            time.sleep(0.01)
        if not _group_lives(guard):
            break
    guard.wait()
    for stream in (guard.stdin, guard.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def _group_lives(guard: subprocess.Popen[bytes]) -> bool:
    guard.poll()  # a zombie would count as alive
    try:
        os.killpg(guard.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
