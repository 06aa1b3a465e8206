"""Who is to blame when members wait for each other.

    blamed({"node-3": {"node-0"}, "node-2": {"node-3"}}, stalled={"node-0", "node-2", "node-3"}, ranks=[...])

A member that hangs in its training still sends heartbeats, and makes the others hang too: in a ring, 0 waits for 3, who
waits for 2, who computes forever. All three stand still and two are suspected, but only 2 suspects nobody itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

__all__ = ["Suspicions", "blamed"]

_LONGEST_REASON = 200


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
        """`broken`: a connection broke or was refused, rather than that no answer came; `wrong`: nonsense came."""
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
        """Who sent what can't be: who says so and what it was. Who is said to have done so itself is not believed."""
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
