"""Whether training still takes what it took when it was planned."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from minga.comm import Transport
from minga.comm.decisions import Decisions

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
    """Rank 0 looks at the time of each step, and all ranks notice a change at the end of the next one."""

    until: float
    """No change counts before this moment."""
    last: float
    seconds: list[float] = field(default_factory=list)
    """Of the first steps."""
    strange: int = 0
    verdict: bool = False
    decisions: Decisions = field(default_factory=lambda: Decisions(tag=_TAG), repr=False)

    def changed(self, comm: Transport) -> bool:
        """After each step, on all ranks: whether it is time to look again, the same on all of them."""
        now = comm.now()
        spent, self.last = now - self.last, now
        self.complete()
        if self.verdict:
            return True
        self.decisions.announce(comm, [float(self._is_change(spent, now))])
        return False

    def _is_change(self, spent: float, now: float) -> bool:
        if len(self.seconds) <= _USUAL:
            self.seconds.append(spent)
            return False
        usual = statistics.median(self.seconds[1:])
        strange = spent > _SLOWER * usual or spent < _FASTER * usual
        self.strange = self.strange + 1 if strange and abs(spent - usual) > _LEAST_SECONDS else 0
        return self.strange >= _IN_A_ROW and now >= self.until

    def complete(self) -> None:
        """Nothing is under way afterwards."""
        taken = self.decisions.taken()
        if taken is not None:
            self.verdict = bool(taken[0])

    def resume(self, now: float) -> None:
        """On the clock of another process."""
        self.until, self.last = now + max(0.0, self.until - self.last), now
