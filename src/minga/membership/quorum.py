"""Whether some members may go on without the others.

    obstacle(rules, state, candidates, ended)  # "" if they may, otherwise why not

The coordinator alone announces generations, so there are never two at a time. In a split network the rule is about
which side goes on: the larger one, not whichever the coordinator happens to be on. Every member of the last formed
generation has a vote, and so has the coordinator: of two members, one goes on when the other falls silent.
Who is known to have ended (its connection did, it has left, it was told that it is out) has no vote.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet

from minga.membership.entries import listed
from minga.net.generation import MemberInfo
from minga.membership.roster_state import RosterState
from minga.membership.rules import Rules

__all__ = ["obstacle"]


def obstacle(rules: Rules, state: RosterState, candidates: Collection[MemberInfo], ended: AbstractSet[str]) -> str:
    """Why `candidates` can't be the next generation; `ended` ones have no vote, who has finished is not missed."""
    workers = sum(info.role == "worker" for info in candidates)
    servers = len(candidates) - workers
    if workers < (1 if state.finished else rules.min_nodes):
        return f"{_here(workers, 'worker')}, at least {rules.min_nodes} needed (min_nodes); waiting for others to join"
    if servers < (0 if state.finished else rules.min_servers):
        return f"{_here(servers, 'server')}, at least {rules.min_servers} needed (min_servers); waiting for others"
    here = {info.incarnation for info in candidates}
    silent = [id for incarnation, id in state.formed_members.items() if incarnation not in here | ended]
    survivors = len(here & state.formed_members.keys())
    if survivors >= len(silent):
        return ""
    return (
        f"{survivors} of the {len(state.formed_members)} members of the last generation can be reached, fewer than the "
        f"{len(silent)} that fell silent ({listed(silent)}): this may be the smaller side of a split network; waiting "
        "for them to come back, or to be started again under the same ids"
    )


def _here(number: int, what: str) -> str:
    return f"{number} {what} is here" if number == 1 else f"{number} {what}s are here"
