"""When to let somebody in again whom others could not reach.

    retries.failed(now, "node-3", "node-3 can't be reached by node-1")
    retries.due("node-3")          # not before then; 5 s later at first, twice as long after each failure

Two members with a firewall between them both reach the coordinator, so one of them is put out, comes back, and the
others stand still each time until that is clear. It is let in again, since cables are plugged in again, but ever more
seldom.
"""

from __future__ import annotations

__all__ = ["Retries"]

_LONGEST_SECONDS = 300.0


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
        """What to tell it, and people; the same until it has failed again."""
        failures = self._failures[id]
        return (
            f"{id} could not train with the others ({self._why[id]}), {failures} time{'s' * (failures > 1)} in a row, "
            f"and is let in again {self._pause(failures):.0f} s after that; look for a firewall or a wrong interface "
            "between them"
        )

    def _pause(self, failures: int) -> float:
        return min(_LONGEST_SECONDS, self._first * 2.0 ** min(failures - 1, 16))
