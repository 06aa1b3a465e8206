"""Who hangs, who is to blame when members wait for each other, and when to let somebody in again.

    blamed({"node-3": {"node-0"}, "node-2": {"node-3"}}, stalled={"node-0", "node-2", "node-3"}, ranks=[...])
    retries.failed(now, "node-3", "node-3 can't be reached by node-1")
    retries.due("node-3")          # not before then; 5 s later at first, twice as long after each failure

A member that hangs in its training still sends heartbeats, and makes the others hang too: in a ring, 0 waits for 3, who
waits for 2, who computes forever. All three stand still and two are suspected, but only 2 suspects nobody itself.
Only those who wait can tell; but a slow machine, an evaluation or a disk make others wait too (`StepTimes`).

Two members with a firewall between them both reach the coordinator, so one of them is put out, comes back, and the
others stand still each time until that is clear. It is let in again, since cables are plugged in again, but ever more
seldom (`Retries`).
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

__all__ = ["Retries", "StepTimes", "Suspicions", "blamed"]

_LONGEST_REASON = 200
_LONGEST_PAUSE_SECONDS = 300.0
# How long a rank waits for another one before it says that it hangs: by the steps that it remembers.
_REMEMBERED = 100
_FEWEST_STEPS = 5
_LONGEST_STEPS = 10
_HEARTBEATS = 4


class Suspicions:
    """Who waits for whom in vain, in one generation."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._accusers: dict[str, dict[str, str]] = {}
        self._broken: dict[tuple[str, str], float] = {}
        self._wrong: set[tuple[str, str]] = set()

    def add(
        self, now: float, suspect: str, accuser: str, why: str, *, broken: bool = False, wrong: bool = False
    ) -> None:
        """`broken`: a connection broke or was refused (otherwise no answer came); `wrong`: something malformed came."""
        self._since.setdefault(suspect, now)
        self._accusers.setdefault(suspect, {}).setdefault(accuser, why[:_LONGEST_REASON])
        if broken:
            self._broken.setdefault((suspect, accuser), now)
        if wrong:
            self._wrong.add((suspect, accuser))

    def shift(self, seconds: float) -> None:
        """Nobody could say anything for so long."""
        self._since = {id: moment + seconds for id, moment in self._since.items()}
        self._broken = {pair: moment + seconds for pair, moment in self._broken.items()}

    def broken(self, until: float) -> list[tuple[str, str, str]]:
        """Suspect, accuser and why, of connections that broke not later than `until`."""
        return [(id, by, self._accusers[id][by]) for (id, by), moment in self._broken.items() if moment <= until]

    def wrong(self) -> dict[str, dict[str, str]]:
        """Who sent something malformed: who says so and what it was. Who is accused of it itself is not believed."""
        accused = {suspect for suspect, _ in self._wrong}
        found: dict[str, dict[str, str]] = {}
        for suspect, accuser in self._wrong:
            if accuser not in accused:
                found.setdefault(suspect, {})[accuser] = self._accusers[suspect][accuser]
        return found

    def verdict(self, until: float, stalled: AbstractSet[str], ranks: Sequence[str]) -> list[tuple[str, str]]:
        """Who is to go and why, by suspicions that are at least as old as `until`."""
        ripe = {id: self._accusers[id].keys() & set(ranks) for id, moment in self._since.items() if moment <= until}
        out = []
        for id in blamed(ripe, stalled, ranks):
            by = min(ripe[id], key=ranks.index)
            out.append((id, f"{id} makes no progress, and {by} waits for it ({self._accusers[id][by]})"))
        return out

    def circle(self, until: float, stalled: AbstractSet[str], ranks: Sequence[str]) -> str:
        """Who waits for whom, where everybody who is waited for waits too, so that nobody hangs; empty otherwise."""
        # Who was suspected first may have said a moment later whom it waits for itself.
        waiting = [
            (by, id) for id, accusers in self._accusers.items() if id in stalled for by in accusers if by in ranks
        ]
        ripe = any(self._since[id] <= until for _, id in waiting)
        if not ripe or {id for _, id in waiting} - {by for by, _ in waiting}:
            return ""
        return "; ".join(f"{by} waits for {id} ({self._accusers[id][by]})" for by, id in sorted(waiting))


def blamed(accusers: Mapping[str, AbstractSet[str]], stalled: AbstractSet[str], ranks: Sequence[str]) -> list[str]:
    """Ids of those to go. `accusers` of each suspect; `stalled`: who makes no progress; `ranks`: ids in their order.

    Progress clears any suspicion. If all suspects suspect others too (a link between two of them is cut), one of them
    goes: the one that most others miss, of those the one of the highest rank.
    """
    suspects = [id for id in ranks if accusers.get(id) and id in stalled]
    accusing = {accuser for by in accusers.values() for accuser in by}
    hanging = [id for id in suspects if id not in accusing]
    if hanging or not suspects:
        return hanging
    return [max(suspects, key=lambda id: (len(accusers[id]), ranks.index(id)))]


class Retries:
    """Who must wait before it may be in the next generation."""

    def __init__(self, first_seconds: float) -> None:
        self._first = first_seconds
        self._failures: dict[str, int] = {}
        self._due: dict[str, float] = {}
        self._why: dict[str, str] = {}

    def failed(self, now: float, id: str, why: str) -> None:
        """A generation with it could not be formed, or could not train."""
        failures = self._failures[id] = self._failures.get(id, 0) + 1
        self._due[id] = now + self._pause(failures)
        self._why[id] = why

    def succeeded(self, id: str) -> None:
        """It trains with the others."""
        for notes in (self._failures, self._due, self._why):
            notes.pop(id, None)

    def due(self, id: str) -> float:
        return self._due.get(id, 0.0)

    def shift(self, seconds: float) -> None:
        """Nobody could do anything for so long."""
        self._due = {id: moment + seconds for id, moment in self._due.items()}

    def why(self, id: str) -> str:
        """For itself, and for people; the same until it has failed again."""
        failures = self._failures[id]
        return (
            f"{id} could not train with the others ({self._why[id]}), {failures} time{'s' * (failures > 1)} in a row, "
            f"and is let in again {self._pause(failures):.0f} s after that; look for a firewall or a wrong interface "
            "between them"
        )

    def _pause(self, failures: int) -> float:
        return min(_LONGEST_PAUSE_SECONDS, self._first * 2.0 ** min(failures - 1, 16))


class StepTimes:
    """Of one rank, from step to step, with everything that lies between them."""

    def __init__(self, heartbeat_timeout_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._least = _HEARTBEATS * heartbeat_timeout_seconds
        self._clock = clock
        self._last: float | None = None
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)

    def stepped(self) -> None:
        now = self._clock()
        if self._last is not None:
            self._seconds.append(now - self._last)
        self._last = now

    def pause(self) -> None:
        """What comes now is no step."""
        self._last = None

    @property
    def longest(self) -> float:
        """Seconds of the longest of the last steps; 0 where there was none."""
        return max(self._seconds, default=0.0)

    @property
    def patience(self) -> float:
        """Ten of the longest steps, at least four heartbeats' deadlines; without end while nothing is known."""
        if self._last is None or len(self._seconds) < _FEWEST_STEPS:
            return math.inf
        return max(self._least, _LONGEST_STEPS * self.longest)
