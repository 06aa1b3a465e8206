"""When to take a checkpoint: at the same step on all ranks in lock step, and without anybody waiting for that.

    schedule = CheckpointSchedule(settings)
    if schedule.after(step, comm.group(range(trainers)), lockstep=True, stopping=asked_to_stop()): ...

Rank 0 has the clock. Every so many steps, about ten times a second, it announces what to do at the next such step, and
when the one after that is. Ranks that are not in lock step need no agreement: each looks at its own clock.
"""

from __future__ import annotations

import enum

from minga.comm.decisions import Decisions
from minga.comm.transport import Transport
from minga.runs.experiment import Checkpoints

__all__ = ["LAST_MOMENT", "CheckpointSchedule", "Verdict"]

_TAG = 1 << 19
_INTERVAL_SECONDS = 0.1
_LONGEST_INTERVAL = 1000

LAST_MOMENT = 99_999_999
"""The number of the moment at which ranks that are not in step are asked to stop."""


class Verdict(enum.IntEnum):
    """What to do after a step."""

    GO_ON = 0
    CHECKPOINT = 1
    STOP = 2


class CheckpointSchedule:
    """One rank's view of when checkpoints are due."""

    def __init__(self, settings: Checkpoints) -> None:
        self._settings = settings
        self._began: float | None = None
        self._taken = 0.0
        self._agreement: _Agreement | None = None
        self.number = 0
        """For ranks that are not in step: the number of the last moment."""

    def after(self, step: int, comm: Transport, *, lockstep: bool, stopping: bool) -> Verdict:
        """After a step, on every rank that trains (`comm` is among these)."""
        now = comm.now()
        if self._began is None:
            self._began = self._taken = now
        by_steps = bool(self._settings.every_steps) and step % self._settings.every_steps == 0
        if not lockstep:
            return self._alone(step, now, by_steps, stopping)
        every = self._settings.every_seconds
        overdue = bool(every) and now - self._taken >= every
        wanted = Verdict.STOP if stopping else Verdict.CHECKPOINT if overdue else Verdict.GO_ON
        if comm.size > 1:
            self._agreement = self._agreement or _Agreement(step)
            wanted = self._agreement.after(step, comm, wanted)
        verdict = max(wanted, Verdict.CHECKPOINT if by_steps else Verdict.GO_ON)
        if verdict:
            self._taken = now
        return verdict

    def _alone(self, step: int, now: float, by_steps: bool, stopping: bool) -> Verdict:
        assert self._began is not None
        if stopping:
            self.number = LAST_MOMENT
            return Verdict.STOP
        if self._settings.every_steps:
            # Names of moments are the same on all ranks, so they must come from one thing: steps, if they count at all.
            self.number = step if by_steps else self.number
            return Verdict.CHECKPOINT if by_steps else Verdict.GO_ON
        every = self._settings.every_seconds
        number = int((now - self._began) / every) if every else 0
        if number > self.number:
            self.number = number
            return Verdict.CHECKPOINT
        return Verdict.GO_ON


class _Agreement:
    """What rank 0 announces for a later step, and for which one."""

    def __init__(self, step: int) -> None:
        self._next = step
        self._interval = 1
        self._decided = Verdict.GO_ON
        self._decisions = Decisions(tag=_TAG)
        self._since: tuple[int, float] | None = None

    def after(self, step: int, comm: Transport, wanted: Verdict) -> Verdict:
        """What was announced for this step; `wanted` is rank 0's wish for the next announcement."""
        if step < self._next:
            return Verdict.GO_ON
        taken = self._decisions.taken()
        if taken is not None:
            self._decided, self._interval = Verdict(int(taken[0])), int(taken[1])
        self._next = step + self._interval
        if self._decided is not Verdict.STOP:
            decided = wanted if self._decided is Verdict.GO_ON else Verdict.GO_ON
            self._decisions.announce(comm, [float(decided), float(self._fitting_interval(step, comm.now()))])
        return self._decided

    def _fitting_interval(self, step: int, now: float) -> int:
        """Steps until the announcement after the next one."""
        interval = self._interval
        if self._since is not None and now > self._since[1]:
            fitting = int(_INTERVAL_SECONDS * (step - self._since[0]) / (now - self._since[1]))
            interval = max(1, min(fitting, 2 * self._interval, _LONGEST_INTERVAL))
        self._since = (step, now)
        return interval
