"""Who may come in, and in words what to do if somebody may not.

difference({"version": "0.1.0"}, {"version": "0.2.0"}, "node-3")
# "version: this run has 0.1.0, node-3 has 0.2.0; install the same version of Minga on both"
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from minga.membership.entries import Entry
from minga.net.generation import MemberInfo
from minga.membership.messages import Hello
from minga.membership.roster_state import RosterState
from minga.membership.rules import Rules

__all__ = ["difference", "natural", "objection"]

_REMEDIES = {
    "version": "install the same version of Minga on both",
    "workload": "copy the workload's file to that node, so that both have the same",
    "data": "copy the data set to that node, so that both have the same",
    "settings": "start both from the same experiment",
}


def objection(rules: Rules, state: RosterState, hello: Hello, known: Entry | None, there: int) -> str:
    """Why somebody can't take part; empty if it can. `known` has its id; `there` are members and joiners."""
    info = hello.info
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
            f"another id, or wait until the other is out ({rules.heartbeat_timeout_seconds:g} s after its last word)"
        )
    if there >= rules.max_members:
        return f"the run has {there} members already, the most that max_members allows"
    return difference(state.facts, hello.facts, info.id) if state.facts is not None else ""


def difference(ours: Mapping[str, str], theirs: Mapping[str, str], id: str) -> str:
    """What differs between the run's facts and a newcomer's, in words; empty if nothing does."""
    words = []
    for name in sorted({*ours, *theirs}):
        if ours.get(name) != theirs.get(name):
            remedy = next((text for key, text in _REMEDIES.items() if name.startswith(key)), "make them the same")
            mine, other = ours.get(name, "none"), theirs.get(name, "none")
            words.append(f"{name}: this run has {mine}, {id} has {other}; {remedy}")
    return ". ".join(words)


def natural(info: MemberInfo) -> tuple[bool, list[tuple[int, str]]]:
    """The order of newcomers: workers first, "node-2" before "node-10"."""
    parts = re.findall(r"\d+|\D+", info.id)
    return info.role != "worker", [(int(part), "") if part.isdigit() else (-1, part) for part in parts]
