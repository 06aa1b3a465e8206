"""One process that imports torch once and then forks the processes of a run: 4 ranks start as fast as one.

    python -m minga.launch.fork_server       # reads jobs from standard input, writes of their ends on the output

It has no threads, as forking beside them is not safe, and it is the jobs' guard: when its standard input closes because
the launcher is gone, however that came about, it ends them all.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from minga.lab.namespaces import die_with_parent, enter
from minga.launch.processes import Job, JobEnded, JobStarted

__all__ = ["main"]


def main() -> None:
    import torch

    import minga.launch.rank  # noqa: F401  (imported before forking, so that no job has to)

    # The first optimizer of a process imports much of torch: a second, which the jobs would each need to spend.
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    torch.set_num_threads(1)  # no pool of threads may exist when forking; each job sets its own number
    report = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    names: dict[int, str] = {}
    for jobs in _orders():
        for job in jobs:
            pid = os.fork()
            if pid == 0:
                report.close()
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _run(job)
            names[pid] = job.name
            print(json.dumps(asdict(JobStarted(job.name, pid))), file=report)
        for pid, status in _ended():
            print(json.dumps(asdict(JobEnded(names.pop(pid), os.waitstatus_to_exitcode(status)))), file=report)


def _orders() -> Iterator[list[Job]]:
    """Jobs that the launcher asks for, at once and later; an empty list when one may have ended.

    Without threads: forking beside them is not safe. When the launcher is gone, so is everybody.
    """
    bell, ring = os.pipe()
    os.set_blocking(ring, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
    rest = b""
    while True:
        ready, _, _ = select.select([0, bell], [], [])
        if 0 in ready:
            chunk = os.read(0, 1 << 16)
            if not chunk:
                os.killpg(0, signal.SIGKILL)
            *lines, rest = (rest + chunk).split(b"\n")
            yield from ([Job(**table) for table in json.loads(line)] for line in lines)
        if bell in ready:
            os.read(bell, 1 << 10)
            yield []


def _ended() -> Iterator[tuple[int, int]]:
    """Process and status of those that have ended."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended


def _run(job: Job) -> NoReturn:
    """In the child: become the job. `os._exit`, since this is a copy of the fork server's stack."""
    code = 1
    try:
        if sys.platform == "linux":  # should the fork server itself be killed
            die_with_parent()
        _redirect(Path(job.log), job.show)
        if job.place:
            enter(job.place)
        os.environ.update(job.environment)
        module, _, function = job.function.partition(":")
        code = getattr(importlib.import_module(module), function)(job.order)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if leaving.code is not None and not isinstance(leaving.code, int):
            print(leaving.code, file=sys.stderr)  # as Python does for sys.exit("a message")
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _redirect(log: Path, show: bool) -> None:
    """Input from nowhere, output to the job's log (a job that is shown keeps the launcher's own output)."""
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(target, 1)
    os.dup2(target, 2)
    if show:
        os.dup2(int(os.environ["MINGA_SHOW_OUTPUT"]), 1)
        os.dup2(int(os.environ["MINGA_SHOW_ERRORS"]), 2)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115


if __name__ == "__main__":
    main()
