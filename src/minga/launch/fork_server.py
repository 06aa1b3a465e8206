"""One process that imports torch once and then forks the processes of a run: 4 ranks start as fast as one.

    python -m minga.launch.fork_server       # reads its jobs from standard input, tells of their ends on the output

It stays single-threaded until all jobs are forked (forking beside threads is not safe), and it is the jobs'
guard: when its standard input closes because the launcher is gone, however that came about, it ends them all.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, NoReturn

from minga.lab.namespaces import die_with_parent, enter

__all__ = ["main"]


def main() -> None:
    import torch

    import minga.launch.rank  # noqa: F401  (imported before forking, so that no job has to)

    # The first optimizer of a process imports much of torch: a second, which the jobs would each need to spend.
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    torch.set_num_threads(1)  # no pool of threads may exist when forking; each job sets its own number
    jobs: list[dict[str, Any]] = json.loads(sys.stdin.readline())
    report = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    names: dict[int, str] = {}
    for job in jobs:
        pid = os.fork()
        if pid == 0:
            report.close()
            _run(job)
        names[pid] = job["name"]
        print(json.dumps({"started": job["name"], "pid": pid}), file=report)
    threading.Thread(target=_end_with_the_launcher, daemon=True).start()
    while names:
        pid, status = os.wait()
        if pid in names:
            print(json.dumps({"ended": names.pop(pid), "code": os.waitstatus_to_exitcode(status)}), file=report)
    report.close()


def _end_with_the_launcher() -> None:
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


def _run(job: dict[str, Any]) -> NoReturn:
    """In the child: become the job. `os._exit`, since this is a copy of the fork server's stack."""
    code = 1
    try:
        if sys.platform == "linux":  # should the fork server itself be killed
            die_with_parent()
        _redirect(Path(job["log"]), job.get("show", False))
        if job.get("place"):
            enter(job["place"])
        os.environ.update(job.get("environment", {}))
        module, _, function = job["function"].partition(":")
        code = getattr(importlib.import_module(module), function)(job["arguments"])
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
