"""What became of a run that was harmed, as its events tell.

    outcome = measure(job, code, undisturbed_accuracy)

Times are on the clock of the events, which all processes of a machine share.
"""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, field
from typing import Any

from drills.event_log import EventLog
from drills.job import TOTAL_BATCH, Job
from minga.measure.events import Evaluated, Finished, RankRecovered

__all__ = ["Outcome", "longest_pause", "lost_steps", "measure"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One trial of one fault."""

    fault: str
    trial: int
    survived: bool
    """Whether training came to its end."""
    problem: str = ""
    """Why not, in words."""
    skipped: str = ""
    """Why it was not tried, in words."""
    lost_steps: float | None = None
    """Work that had to be done again, or was lost, in steps of all ranks."""
    recovery_seconds: float | None = None
    """The longest time, from the harm on, without a step of somebody who was not harmed."""
    accuracy: float | None = None
    undisturbed: float | None = None
    """The accuracy without the fault."""
    identical: bool | None = None
    """Whether all who came to the end have the same bits; None: they are not meant to."""
    finished: int = 0
    """How many came to the end."""
    ideal: float | None = None
    """Steps while things happened, relative to as many seconds before."""
    seconds: float = 0.0
    """Of the whole trial."""
    broken: list[str] = field(default_factory=list)
    """Promises that were not kept, in words."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(job: Job, fault: str, trial: int, code: int, undisturbed: float | None) -> dict[str, Any]:
    """The fields of an `Outcome`; what the fault's own script has noted stands above it."""
    log = job.log
    ends = log.of(Finished)
    digests = {end.event.digest for end in ends if end.who in log.steps}  # servers have a part each
    evaluated = sorted((logged.event for logged in log.of(Evaluated)), key=lambda event: event.time)
    found: dict[str, Any] = {
        "fault": fault,
        "trial": trial,
        "survived": code == 0 and bool(ends),
        "problem": "" if code == 0 else f"exit code {code}: {job.last_words()}",
        "lost_steps": lost_steps(log, job.harmed, job.victims),
        "recovery_seconds": longest_pause(log, job.harmed, job.victims),
        "accuracy": evaluated[-1].metrics["accuracy"] if evaluated else None,
        "undisturbed": undisturbed,
        "identical": len(digests) == 1 if digests else None,
        "finished": len(ends),
    }
    return {**found, **job.notes}


def longest_pause(log: EventLog, since: float, victims: set[str]) -> float | None:
    """The longest time without a step of any of those who were not harmed."""
    pauses = []
    unharmed = {who: steps for who, steps in log.steps.items() if who not in victims}
    last = max((steps[-1][0] for steps in unharmed.values()), default=since)
    if last <= since:
        return None
    for steps in unharmed.values():
        began = max(since, steps[0][0])  # who has joined later has not paused before
        # Until the end: who was lost, though nobody has harmed it, has paused too.
        times = [began, *(time for time, _ in steps if time > since), last]
        pauses += [later - earlier for earlier, later in itertools.pairwise(times)]
    return max(pauses, default=None)


def lost_steps(log: EventLog, since: float, victims: set[str]) -> float:
    """Of all changes after the harm, the one that cost most: steps that were done before it, and samples still owed."""
    changes: dict[int, list[RankRecovered]] = {}
    for logged in log.of(RankRecovered):
        if logged.event.time > since:
            changes.setdefault(logged.event.generation, []).append(logged.event)
    lost = [0.0]
    for events in changes.values():
        first = min(event.time for event in events)
        done = [step for who, steps in log.steps.items() if who not in victims for time, step in steps if time < first]
        again = max(0, max(done, default=0) - events[0].step)
        lost.append(again + max(event.owed for event in events) / TOTAL_BATCH)
    return max(lost)
