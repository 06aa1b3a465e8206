"""Faults of processes: killed, stopped, starved of memory, asked to end."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

from drills.event_log import EventLog
from drills.fault import Harm
from drills.job import Job, Spoiled
from minga.measure.events import CheckpointWritten, RankRecovered, Resumed

__all__ = [
    "kill_coordinator",
    "kill_everything_and_go_on",
    "kill_rank",
    "kill_server",
    "kill_unacknowledged",
    "out_of_memory",
    "stop_and_go_on",
    "stop_for_a_while",
]

_FIRST_STEP = 30
# What the group of a rank that is to run out of memory may take on top of what it has.
_ROOM_BYTES = 64 << 20


def _somewhere(job: Job, dice: random.Random) -> None:
    """Not always at the same step: faults don't care where a run is."""
    job.until_step(_FIRST_STEP + dice.randrange(30))


def kill_rank(rank: int) -> Harm:
    def harm(job: Job, dice: random.Random) -> None:
        pid = job.pid(f"rank-{rank}")
        _somewhere(job, dice)
        job.kill(pid)
        job.harm(f"rank-{rank}")

    return harm


def kill_server(rank: int) -> Harm:
    """It is started again, and workers wait for it."""

    def harm(job: Job, dice: random.Random) -> None:
        who = f"rank-{rank}"
        pid = job.pid(who)
        _somewhere(job, dice)
        job.kill(pid)
        job.harm(who)
        job.until_event(RankRecovered, lambda logged: logged.event.time > job.harmed)

    return harm


def kill_unacknowledged(rank: int) -> Harm:
    """A worker dies when its update is sent, and before it has an answer."""

    def harm(job: Job, dice: random.Random) -> None:
        who = f"rank-{rank}"
        pid = job.pid(who)
        _somewhere(job, dice)
        job.deadly.write_text(str(pid), encoding="ascii")
        while _lives(pid):
            job.pass_seconds(0.02)
        job.harm(who)

    return harm


def kill_coordinator(job: Job, dice: random.Random) -> None:
    """And then a rank, which the new one must know of."""
    _somewhere(job, dice)
    pid = job.coordinator()
    job.kill(pid)
    job.harm()
    job.until(lambda: _another_coordinator(job, pid), "another coordinator")
    job.pass_seconds(2)
    job.kill(job.pid("rank-1"))
    job.victims.add("rank-1")


def _another_coordinator(job: Job, before: int) -> bool:
    with contextlib.suppress(Exception):
        return job.coordinator() != before
    return False


def stop_for_a_while(rank: int, seconds: float | None) -> Harm:
    """SIGSTOP: the process is there, and says nothing; then (None: never) it goes on as if nothing had been."""

    def harm(job: Job, dice: random.Random) -> None:
        who = f"rank-{rank}"
        pid = job.pid(who)
        _somewhere(job, dice)
        job.kill(pid, signal.SIGSTOP)
        job.harm(who)
        if seconds is None:
            return
        try:
            job.pass_seconds(seconds)
        finally:
            job.kill(pid, signal.SIGCONT)
        job.mended = time.perf_counter()
        job.until_event(RankRecovered, lambda logged: logged.who == who and logged.event.time > job.mended)

    return harm


def kill_everything_and_go_on(job: Job, dice: random.Random) -> None:
    """The launcher, the coordinator, all ranks: as if the machine had lost power. Then `--resume`."""
    job.until_event(CheckpointWritten)
    job.pass_seconds(dice.uniform(0.5, 3))
    ranks = [job.pid(f"rank-{rank}") for rank in range(job.setting.nodes)]
    for pid in [job.main.pid, job.coordinator(), *ranks]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    job.harm()
    job.main.wait()
    _resume(job)


def stop_and_go_on(job: Job, dice: random.Random) -> None:
    """SIGTERM to the command; then `--resume`."""
    _somewhere(job, dice)
    os.kill(job.main.pid, signal.SIGTERM)
    job.harm()
    code = job.finish()
    if code != 143:
        job.notes |= {"survived": False, "problem": f"exit code {code} after SIGTERM instead of 143"}
    _resume(job)


def _resume(job: Job) -> None:
    """What is lost, and for how long nobody trained, is not to be read from the files afterwards."""
    before = EventLog(job.run / "events")
    before.read()
    job.go_on()
    resumed = job.until_event(Resumed, lambda logged: logged.event.time > job.harmed).event
    job.until_step(resumed.step + 1)
    since = resumed.time
    first = min(time for steps in job.log.steps.values() for time, _ in steps if time > since)
    job.notes |= {"lost_steps": float(before.last_step - resumed.step), "recovery_seconds": first - job.harmed}


def out_of_memory(rank: int) -> Harm:
    """The kernel ends a rank that needs more memory than its control group has."""

    def harm(job: Job, dice: random.Random) -> None:
        who = f"rank-{rank}"
        pid = job.pid(who)
        group = _memory_group(f"minga-chaos-{os.getpid()}", _ROOM_BYTES)
        try:
            _somewhere(job, dice)
            (group / "cgroup.procs").write_text(str(pid), encoding="ascii")
            job.hungry.write_text(str(pid), encoding="ascii")
            while _lives(pid):
                job.pass_seconds(0.02)
            job.harm(who)
        finally:
            deadline = time.monotonic() + 5
            while group.exists() and time.monotonic() < deadline:
                with contextlib.suppress(OSError):  # busy until the process is gone for good
                    group.rmdir()
                time.sleep(0.02)

    return harm


def _memory_group(name: str, limit_bytes: int) -> Path:
    """A control group of either version; `Spoiled` where none can be made."""
    top = Path("/sys/fs/cgroup")
    second = (top / "cgroup.controllers").exists()
    group = (top if second else top / "memory") / name
    try:
        if second:
            (top / "cgroup.subtree_control").write_text("+memory", encoding="ascii")
        group.mkdir()
        limit = group / ("memory.max" if second else "memory.limit_in_bytes")
        limit.write_text(str(limit_bytes), encoding="ascii")
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        raise Spoiled(f"no control group for memory can be made here: {error.strerror or error}") from None
    return group


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
