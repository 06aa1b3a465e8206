"""Nodes that come and go."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import time
from collections.abc import Callable

from drills.event_log import Logged
from drills.fault import Harm
from drills.job import Job
from minga.measure.events import RankRecovered, Started

__all__ = ["churn", "join"]


def join(job: Job, dice: random.Random) -> None:
    """Another node joins in mid-run."""
    job.until_step(30)
    before = job.setting.nodes
    job.join_another()
    joined = job.until_event(RankRecovered, lambda logged: logged.event.ranks == before + 1).event
    job.harm()
    # Others go on while it starts; what they notice is the pause in which all come together.
    job.harmed = joined.time - joined.seconds


def churn(minutes: float, interval_seconds: float) -> Harm:
    """One of five nodes dies in every interval, and another one comes for it."""

    def harm(job: Job, dice: random.Random) -> None:
        job.until_step(40)
        job.pass_seconds(15)
        job.log.read()
        before = _rate(job, time.perf_counter() - 12, time.perf_counter())
        job.harm()
        began = time.perf_counter()
        alive = {f"rank-{rank}": job.pid(f"rank-{rank}") for rank in range(job.setting.nodes)}
        for number in itertools.count(1):
            if job.log.last_step > 0.95 * job.setting.steps:  # faster than planned
                break
            who = dice.choice(sorted(alive))
            with contextlib.suppress(ProcessLookupError):
                os.kill(alive.pop(who), signal.SIGKILL)
            job.victims.add(who)
            job.pass_seconds(interval_seconds / 6)
            known = {logged.who for logged in job.log.of(Started)}
            job.join_another()
            come = job.until_event(Started, _from_another(known))
            alive[come.who] = come.event.pid
            job.pass_seconds(max(0.0, began + number * interval_seconds - time.perf_counter()))
            if time.perf_counter() - began >= 60 * minutes:
                break
        ended = time.perf_counter()
        job.pass_seconds(1)
        job.log.read()
        job.notes["ideal"] = _rate(job, began, ended) / before

    return harm


def _from_another(known: set[str]) -> Callable[[Logged[Started]], bool]:
    return lambda logged: logged.who not in known


def _rate(job: Job, begin: float, end: float) -> float:
    """Steps in a second, of the run as a whole."""
    steps = [(when, step) for steps in job.log.steps.values() for when, step in steps if begin <= when <= end]
    return (max(steps)[1] - min(steps)[1]) / (end - begin) if steps else 0.0
