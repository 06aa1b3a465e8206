"""A run of `minga train` as a process of its own, watched from outside and to be harmed.

    with Job(folder, Setting(strategy="ring")) as job:
        job.until_step(40)
        job.kill(job.pid("rank-0"))
        code = job.finish()

Every wait has the trial's deadline, after which the job counts as one that hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import psutil  # type: ignore[import-untyped]

from drills import paced, unacknowledged
from drills.event_log import AnyEvent, EventLog, Logged
from minga.errors import MingaError
from minga.measure.events import Resumed, Started

__all__ = ["Hang", "Job", "Setting", "Spoiled"]

_TICK_SECONDS = 0.02
TOTAL_BATCH = 64
PAUSE_SECONDS = 0.03
STEPS_A_SECOND = 22
"""At most, with the pause and all that is not pausing; for plans, not for measurements."""


class Hang(MingaError):
    """Something did not happen in time."""


class Spoiled(MingaError):
    """This machine can't do this to a run; the fault is skipped."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is trained while the fault happens."""

    file: str = str(paced.__file__)
    """With the workload."""
    strategy: str = "ring"
    nodes: int = 4
    steps: int = 20 * STEPS_A_SECOND
    heartbeat_timeout_seconds: float = 5.0
    bandwidth: str | None = None
    """Of each host in a lab; None: on loopback."""
    options: tuple[str, ...] = ()
    """More words for `minga train`."""
    seed: int = 0
    pause_seconds: float = PAUSE_SECONDS
    """In each step; 0 where nothing is to happen meanwhile."""

    def words(self, runs: Path) -> list[str]:
        """The arguments of `minga train`."""
        words = [f"{self.file}:workload", "--nodes", str(self.nodes), "--strategy", self.strategy]
        words += ["--steps", str(self.steps), "--total-batch", str(TOTAL_BATCH), "--seed", str(self.seed)]
        words += ["--transport", "tcp", "--heartbeat-timeout", f"{self.heartbeat_timeout_seconds}s"]
        words += ["--set", "training.evaluate_every=0", "--runs", str(runs), "--json"]
        if self.bandwidth is not None:
            words += ["--bandwidth", self.bandwidth]
        return [*words, *self.options]


class Job:
    """One training from its start to its end, through whatever happens to it."""

    def __init__(self, folder: Path, setting: Setting, *, deadline_seconds: float) -> None:
        self.setting = setting
        self.folder = folder
        self.deadline = time.monotonic() + deadline_seconds
        self.harmed = 0.0
        """When the harm was done, on the clock of the events."""
        self.mended = float("inf")
        """When the cause of it was gone, if it went."""
        self.victims: set[str] = set()
        """Names of the event files of ranks that are not expected to go on."""
        self.notes: dict[str, Any] = {}
        """What the fault's own script has found out; it stands above what is measured from outside."""
        self.hungry = folder / "hungry"
        """Has the id of a process that is to eat up its memory; `deadly`: of one that dies at a certain point."""
        self.deadly = folder / "deadly"
        self._runs = folder / "runs"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._files: list[IO[bytes]] = []
        self._run: Path | None = None
        self.log = EventLog()

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        self.start("train", *self.setting.words(self._runs))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Whatever has happened, nothing of it is left: ranks end with their launcher."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for file in self._files:
            file.close()

    def start(self, *words: str, token: str | None = None) -> subprocess.Popen[bytes]:
        """Another `minga` command that belongs to this job."""
        number = len(self._processes)
        output, errors = (self.folder / f"{number}.{name}" for name in ("out", "err"))
        self._files += [output.open("wb"), errors.open("wb")]
        process = subprocess.Popen(
            [sys.executable, "-m", "minga", *words],
            stdin=subprocess.DEVNULL,
            stdout=self._files[-2],
            stderr=self._files[-1],
            start_new_session=True,
            env={
                **os.environ,
                paced.PAUSE_VARIABLE: str(self.setting.pause_seconds),
                paced.HUNGRY_VARIABLE: str(self.hungry),
                unacknowledged.DEADLY_VARIABLE: str(self.deadly),
                **({"MINGA_TOKEN": token} if token is not None else {}),
            },
        )
        self._processes.append(process)
        return process

    # What it does

    @property
    def main(self) -> subprocess.Popen[bytes]:
        """The command that the job began with."""
        return self._processes[0]

    @property
    def run(self) -> Path:
        """Its directory."""
        if self._run is None:
            self._run = self.until(lambda: next(iter(self._runs.glob("*/events")), None), "a run's directory").parent
            self.log.add(self._run / "events")
        return self._run

    def until(self, what: Callable[[], Any], words: str) -> Any:
        """Wait for something; `Hang` at the deadline, or when the job has ended without it."""
        while not (found := what()):
            if time.monotonic() > self.deadline:
                raise Hang(f"waited in vain for {words}")
            if self.main.poll() is not None and not (found := what()):
                raise Hang(f"the run ended with exit code {self.main.returncode} before {words}: {self.last_words()}")
            time.sleep(_TICK_SECONDS)
        return found

    def until_step(self, step: int) -> None:
        def there() -> bool:
            self.log.read()
            return self.log.last_step >= step

        assert self.run
        self.until(there, f"step {step}")

    def until_event(
        self, kind: type[AnyEvent], fits: Callable[[Logged[AnyEvent]], bool] = lambda logged: True
    ) -> Logged[AnyEvent]:
        def find() -> Logged[AnyEvent] | None:
            self.log.read()
            return next((logged for logged in self.log.of(kind) if fits(logged)), None)

        assert self.run
        found: Logged[AnyEvent] = self.until(find, f"an event {kind.event!r}")
        return found

    def pass_seconds(self, seconds: float) -> None:
        """Let time go by, while the run goes on."""
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end, f"{seconds:g} s to pass")

    def finish(self) -> int:
        """Wait for its end; the exit code."""
        while self.main.poll() is None:
            if time.monotonic() > self.deadline:
                raise Hang(f"it did not come to its end; it is at step {self._step_now()}")
            time.sleep(_TICK_SECONDS)
        self.log.read()
        return int(self.main.returncode)

    def _step_now(self) -> int:
        self.log.read()
        return self.log.last_step

    def last_words(self) -> str:
        files = sorted(self.folder.glob("*.err"), key=lambda path: path.stat().st_mtime)
        texts = [path.read_text(encoding="utf-8", errors="replace").strip() for path in files]
        return " / ".join([line for text in texts for line in text.splitlines()][-2:])

    # What is done to it

    def pid(self, who: str) -> int:
        """The process of a rank, by the name of its event file."""
        self.until_event(Started, lambda logged: logged.who == who)
        began: list[Started | Resumed] = [logged.event for logged in self.log.of(Started, who)]
        began += [logged.event for logged in self.log.of(Resumed, who)]
        return max(began, key=lambda event: event.time).pid

    def coordinator(self) -> int:
        """The process that has the lock on the roster's file."""
        lock = self.run / "coordinator.json.lock"
        for process in psutil.process_iter():
            with contextlib.suppress(OSError):
                if lock in {path.readlink() for path in Path(f"/proc/{process.pid}/fd").iterdir()}:
                    return int(process.pid)
        raise Hang("there is no coordinator")

    def harm(self, *victims: str) -> None:
        """Right after the harm: remember when, and who can't be expected to go on as if nothing had been."""
        self.harmed = time.perf_counter()  # the clock of events, on all processes of this machine
        self.victims |= set(victims)

    def kill(self, pid: int, how: signal.Signals = signal.SIGKILL) -> None:
        os.kill(pid, how)

    def join_another(self) -> subprocess.Popen[bytes]:
        """Another node, as another machine would join."""
        state = json.loads((self.run / "coordinator.json").read_text(encoding="utf-8"))
        name = f"joined-{len(self._processes)}"
        runs = self.folder / name
        where = f"{state['address']}:{state['port']}"
        process = self.start("join", where, "--runs", str(runs), "--json", token=state["token"])
        self.until(lambda: next(iter(runs.glob("*/events")), None), "the directory of a node that joins")
        self.log.add(next(iter(runs.glob("*/events"))), f"{name}/")
        return process

    def go_on(self) -> None:
        """`minga train --resume`, from here on the job's command."""
        process = self.start("train", "--resume", str(self.run), "--json")
        self._processes.remove(process)
        self._processes.insert(0, process)
        self.log = EventLog(self.run / "events")  # what came after the checkpoint is taken out of the files
