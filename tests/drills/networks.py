"""Faults of networks, done to the hosts of the lab that a run has made for itself."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from drills.fault import Harm
from drills.job import Job
from minga.lab import registry
from minga.lab.laboratory import adjust_link, cut_hosts, mend_hosts
from minga.measure.events import RankRecovered
from minga.runs.network import LinkOverride

__all__ = ["cut", "slow_down"]

_FIRST_STEP = 30


def _lab_of(job: Job) -> registry.Record:
    purpose = f"run {job.run.name}"
    found: registry.Record = job.until(
        lambda: next((record for record in registry.records() if record.purpose == purpose), None), "the run's lab"
    )
    return found


def _rank_of(host: str) -> str:
    return f"rank-{int(host.removeprefix('h')) - 1}"


def cut(hosts: Sequence[str], seconds: float | None, *, loud: bool = False) -> Harm:
    """Cut some hosts off, together, and join them again (None: never); they come back and train on with the others."""

    def harm(job: Job, dice: random.Random) -> None:
        lab = _lab_of(job)
        job.until_step(_FIRST_STEP + dice.randrange(30))
        cut_hosts(lab, hosts, loud=loud)
        job.harm(*map(_rank_of, hosts))
        if seconds is None:
            return
        job.pass_seconds(seconds)
        mend_hosts(lab, hosts)
        job.mended = time.perf_counter()
        ranks = job.setting.nodes
        job.until(lambda: _all_train(job, ranks), "all of them to train again")

    return harm


def _all_train(job: Job, ranks: int) -> bool:
    """Whether somebody who was not cut off trains with everybody, after the links were mended."""
    job.log.read()
    changes = [logged.event for logged in job.log.of(RankRecovered) if logged.who not in job.victims]
    together = not changes or changes[-1].ranks == ranks
    stepping = all(
        job.log.steps.get(who, [(0.0, 0)])[-1][0] > job.mended for who in (f"rank-{rank}" for rank in range(ranks))
    )
    return together and stepping


def slow_down(bandwidth: str, after_step: int) -> Harm:
    """All links get slow in the middle of a run, and stay so."""

    def harm(job: Job, dice: random.Random) -> None:
        lab = _lab_of(job)
        job.until_step(after_step + dice.randrange(10))
        for host in lab.hosts:
            adjust_link(lab, host, LinkOverride(bandwidth=bandwidth))  # type: ignore[arg-type]
        job.harm()

    return harm
