"""When to take a checkpoint: at the same step on all ranks that are in step, and without anybody waiting for that.

    moments = Moments(settings)
    if moments.after(step, comm.group(range(trainers)), lockstep=True, stopping=asked_to_stop()): ...

Rank 0 has the clock. Every so many steps, about ten times a second, it tells the others in a word of two numbers what
to do at the next such step, and when the one after that is. The word has all the steps between to arrive, so it is
there when it is looked for. Ranks that are not in step need no agreement: each looks at its own clock.
"""

from __future__ import annotations

import enum

import torch

from minga.comm.transport import Pending, Transport
from minga.runs.experiment import Checkpoints

__all__ = ["LAST_MOMENT", "Moments", "Verdict"]

_TAG = 1 << 19
_WORD_SECONDS = 0.1
_LONGEST_INTERVAL = 1000

LAST_MOMENT = 99_999_999
"""The number of the moment at which ranks that are not in step are asked to stop."""


class Verdict(enum.IntEnum):
    """What to do after a step."""

    GO_ON = 0
    CHECKPOINT = 1
    STOP = 2


class Moments:
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
        wanted = Verdict.STOP if stopping else Verdict.CHECKPOINT if self._overdue(now) else Verdict.GO_ON
        if comm.size > 1:
            self._agreement = self._agreement or _Agreement(step)
            wanted = self._agreement.after(step, comm, wanted)
        verdict = max(wanted, Verdict.CHECKPOINT if by_steps else Verdict.GO_ON)
        if verdict:
            self._taken = now
        return verdict

    def _overdue(self, now: float) -> bool:
        every = self._settings.every_seconds
        return bool(every) and now - self._taken >= every

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
    """Rank 0's words to the others, each sent some steps before it is needed."""

    def __init__(self, step: int) -> None:
        self._next = step
        self._interval = 1
        self._promised = Verdict.GO_ON
        self._word: torch.Tensor | None = None
        self._under_way: list[Pending] = []
        self._since: tuple[int, float] | None = None

    def after(self, step: int, comm: Transport, wanted: Verdict) -> Verdict:
        """What was said for this step; `wanted` is rank 0's wish for the next word."""
        if step < self._next:
            return Verdict.GO_ON
        verdict = self._listen(comm)
        self._next = step + self._interval
        if verdict is not Verdict.STOP:
            self._speak(step, comm, wanted)
        return verdict

    def _listen(self, comm: Transport) -> Verdict:
        for pending in self._under_way:
            pending.wait()
        self._under_way = []
        if comm.rank and self._word is not None:
            self._promised, self._interval = Verdict(int(self._word[0])), int(self._word[1])
        return self._promised

    def _speak(self, step: int, comm: Transport, wanted: Verdict) -> None:
        self._word = torch.zeros(2, dtype=torch.float64)
        if comm.rank:
            self._under_way = [comm.ireceive(self._word, 0, _TAG)]
            return
        now = comm.now()
        if self._since is not None and now > self._since[1]:
            fitting = int(_WORD_SECONDS * (step - self._since[0]) / (now - self._since[1]))
            self._interval = max(1, min(fitting, 2 * self._interval, _LONGEST_INTERVAL))
        self._since = (step, now)
        self._promised = wanted if self._promised is Verdict.GO_ON else Verdict.GO_ON
        self._word[0], self._word[1] = float(self._promised), float(self._interval)
        self._under_way = [comm.isend(self._word, other, _TAG) for other in range(1, comm.size)]
