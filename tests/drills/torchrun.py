"""For comparison: torchrun, which starts everybody again from the last checkpoint."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from drills import ddp_job, paced
from drills.event_log import EventLog
from drills.job import PAUSE_SECONDS, TOTAL_BATCH, Hang, Setting
from drills.outcome import longest_pause
from minga.measure.events import Evaluated, Resumed

__all__ = ["CHECKPOINT_EVERY", "torchrun_after_a_kill"]

CHECKPOINT_EVERY = 50
_FIRST_STEP = 60


def torchrun_after_a_kill(
    folder: Path, setting: Setting, dice: random.Random, deadline_seconds: float
) -> dict[str, Any]:
    """Kill one of its workers; the fields of an `Outcome`."""
    events = folder / "events"
    events.mkdir(parents=True)
    asked = {
        "out": str(events),
        "steps": setting.steps,
        "seed": setting.seed,
        "total_batch": TOTAL_BATCH,
        "checkpoint_every": CHECKPOINT_EVERY,
    }
    words = ["--standalone", f"--nproc-per-node={setting.nodes}", "--max-restarts=3", str(ddp_job.__file__)]
    deadline = time.monotonic() + deadline_seconds
    with (folder / "torchrun.log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", *words, json.dumps(asked)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={
                **os.environ,
                paced.PAUSE_VARIABLE: str(PAUSE_SECONDS),
                "OMP_NUM_THREADS": "1",
                # Otherwise gloo finds the addresses of the processes before in a store that outlives them (torch 2.13),
                # and no restart succeeds.
                "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            },
        )
        try:
            return _harm(process, EventLog(events), dice, deadline)
        finally:
            _end(process)


def _harm(process: subprocess.Popen[bytes], log: EventLog, dice: random.Random, deadline: float) -> dict[str, Any]:
    step = _FIRST_STEP + dice.randrange(40)
    while log.last_step < step:
        _check(process, deadline)
        log.read()
    victim = f"rank-{dice.randrange(4)}"
    os.kill(log.of(Resumed, victim)[0].event.pid, signal.SIGKILL)
    harmed = time.perf_counter()
    while process.poll() is None:
        if time.monotonic() > deadline:
            raise Hang("torchrun did not come to its end")
        time.sleep(0.05)
    log.read()
    again = [logged.event for logged in log.of(Resumed) if logged.event.time > harmed]
    done = max(step for steps in log.steps.values() for when, step in steps if when <= harmed)
    evaluated = [logged.event for logged in log.of(Evaluated)]
    return {
        "survived": process.returncode == 0 and bool(evaluated),
        "problem": "" if process.returncode == 0 else f"exit code {process.returncode}",
        "lost_steps": float(done - again[0].step) if again else None,
        "recovery_seconds": longest_pause(log, harmed, set()),
        "accuracy": evaluated[-1].metrics["accuracy"] if evaluated else None,
        "identical": None,
        "finished": len(evaluated),
    }


def _check(process: subprocess.Popen[bytes], deadline: float) -> None:
    if process.poll() is not None:
        raise Hang(f"torchrun ended with exit code {process.returncode} before it was harmed")
    if time.monotonic() > deadline:
        raise Hang("torchrun did not begin to train")
    time.sleep(0.05)


def _end(process: subprocess.Popen[bytes]) -> None:
    """torchrun's workers are in sessions of their own, and end with it only if it is asked to."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
