"""Who may come in, and who may go on without the others; in words what to do if they may not.

    difference({"version": "0.1.0"}, {"version": "0.2.0"}, "node-3")
    # "version: this run has 0.1.0, node-3 has 0.2.0; install the same version of Minga on both"
    obstacle(rules, state, candidates, ended)  # "" if they may go on, otherwise why not

The coordinator alone announces generations, so there are never two at a time. In a split network the rule is about
which side goes on: the larger one, not whichever the coordinator happens to be on. Every member of the last formed
generation has a vote, and so has the coordinator: of two members, one goes on when the other falls silent.
Who is known to have ended (its connection did, it has left, it knows that it is out) has no vote.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet

from minga.membership.messages import Hello
from minga.membership.roster_state import RosterEntry, RosterState, listed
from minga.membership.rules import Rules
from minga.net.generation import MemberInfo

__all__ = ["difference", "natural", "objection", "obstacle"]

_REMEDIES = {
    "version": "install the same version of Minga on both",
    "workload": "copy the workload's file to that node, so that both have the same",
    "data": "copy the data set to that node, so that both have the same",
    "settings": "start both from the same experiment",
}


def objection(rules: Rules, state: RosterState, hello: Hello, known: RosterEntry | None, there: int) -> str:
    """Why somebody can't take part; empty if it can. `known` has its id; `there` are members and joiners."""
    info = hello.info
    if info.id in state.banned:
        return f"{info.id} is out of this run for good: {state.banned[info.id]}"
    if info.incarnation in state.out:
        return (
            f"this process of {info.id} is out of the run: {state.out[info.incarnation]}. "
            "It may come again as a new member, with the state of the others"
        )
    if known is not None and known.info == info:
        return ""
    if hello.generation:
        return (
            f"{info.id} speaks of generation {hello.generation}, but this process is not in the roster of "
            f"generation {state.number}. It may come again as a new member"
        )
    if state.finished:
        return "the run is finishing: some members are done already"
    if known is not None and known.link is not None and not known.lost:
        return (
            f"there is a {info.id} in the run already, at {known.info.address}:{known.info.port}; give this node "
            f"another id, or wait until the other is out ({rules.heartbeat_timeout_seconds:g} s after its last message)"
        )
    if there >= rules.max_members:
        return f"the run has {there} members already, the most that max_members allows"
    return difference(state.facts, hello.facts, info.id) if state.facts is not None else ""


def difference(ours: Mapping[str, str], theirs: Mapping[str, str], id: str) -> str:
    """What differs between the run's facts and a newcomer's, in words; empty if nothing does."""
    differences = []
    for name in sorted({*ours, *theirs}):
        if ours.get(name) != theirs.get(name):
            remedy = next((text for key, text in _REMEDIES.items() if name.startswith(key)), "make them the same")
            mine, other = ours.get(name, "none"), theirs.get(name, "none")
            differences.append(f"{name}: this run has {mine}, {id} has {other}; {remedy}")
    return ". ".join(differences)


def natural(info: MemberInfo) -> tuple[bool, list[tuple[int, str]]]:
    """The order of newcomers: workers first, "node-2" before "node-10"."""
    parts = re.findall(r"\d+|\D+", info.id)
    return info.role != "worker", [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


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
