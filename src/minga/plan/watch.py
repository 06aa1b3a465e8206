"""Whether training still takes what it took when it was planned."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

import torch

from minga.comm import Pending, Transport

__all__ = ["Watch"]

_TAG = 7001
# Steps after which it is known how long one takes as planned; the first one of them has only begun it all.
_USUAL = 6
# So much slower or faster than usual, some steps in a row, is a change.
_SLOWER, _FASTER = 1.5, 0.6
_IN_A_ROW = 2
# Differences below this are the machine's own.
_LEAST_SECONDS = 0.003


@dataclass
class Watch:
    """Rank 0 looks at the time of each step, and all hear of a change at the same step.

    Its word on one step is received at the end of the next, when it has long arrived: nobody waits for it.
    """

    until: float
    """No change is told before this moment."""
    last: float
    seconds: list[float] = field(default_factory=list)
    """Of the first steps."""
    strange: int = 0
    verdict: bool = False
    told: bool = False
    """Whether there is a word under way."""
    word: torch.Tensor | None = field(default=None, repr=False)
    pending: list[Pending] = field(default_factory=list, repr=False)

    def changed(self, comm: Transport) -> bool:
        """After each step, on all ranks: whether it is time to look again, the same on all of them."""
        now = comm.now()
        spent, self.last = now - self.last, now
        self.hear(comm)
        if self.verdict:
            return True
        self._tell(self._is_change(spent, now), comm)
        return False

    def _is_change(self, spent: float, now: float) -> bool:
        if len(self.seconds) <= _USUAL:
            self.seconds.append(spent)
            return False
        usual = statistics.median(self.seconds[1:])
        strange = spent > _SLOWER * usual or spent < _FASTER * usual
        self.strange = self.strange + 1 if strange and abs(spent - usual) > _LEAST_SECONDS else 0
        return self.strange >= _IN_A_ROW and now >= self.until

    def _tell(self, verdict: bool, comm: Transport) -> None:
        if comm.rank == 0:
            self.verdict, self.word = verdict, torch.tensor([float(verdict)])
            self.pending = [comm.isend(self.word, to, _TAG) for to in range(1, comm.size)]
        self.told = True

    def hear(self, comm: Transport) -> None:
        """The word that is under way arrives."""
        if not self.told:
            return
        self.told = False
        if comm.rank:
            word = torch.zeros(1)
            comm.receive(word, 0, _TAG)
            self.verdict = bool(word)
        for sent in self.pending:
            sent.wait()
        self.pending, self.word = [], None

    def resume(self, now: float) -> None:
        """On the clock of another process."""
        self.until, self.last = now + max(0.0, self.until - self.last), now
