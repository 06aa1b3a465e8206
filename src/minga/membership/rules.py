"""What the roster goes by: its numbers, what it knows, who may come in, and who may go on without the others.

    rules, state = Rules(expect=4, min_nodes=2, heartbeat_timeout_seconds=3), RosterState()
    difference({"version": "0.1.0"}, {"version": "0.2.0"}, "node-3")
    # "version: this run has 0.1.0, node-3 has 0.2.0; install the same version of Minga on both"
    obstacle(rules, state, candidates, ended)  # "" if they may go on, otherwise why not, and what to do

The coordinator alone announces generations, so there are never two at a time. In a split network the rule is about
which side goes on: the larger one, not whichever the coordinator happens to be on. Every member of the last formed
generation has a vote, and so has the coordinator: of two members, one goes on when the other falls silent.
Who is known to have ended (its connection did, it has left, it knows that it is out) has no vote.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from minga.base.config import Config, FieldError
from minga.membership.messages import Hello
from minga.net.generation import START, Generation, MemberInfo, Position
from minga.net.strict import Count, Flag, StrictRecord, Text

__all__ = ["RosterEntry", "RosterState", "Rules", "difference", "listed", "natural", "objection", "obstacle"]

_REMEDIES = {
    "version": "install the same version of Minga on both",
    "workload": "copy the workload's file to that node, so that both have the same",
    "data": "copy the data set to that node, so that both have the same",
    "settings": "start both from the same experiment",
}
_Number = Annotated[int, Field(ge=1)]
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True)
class Rules(Config):
    """How many make a run, and how long is too long."""

    expect: _Number = 1
    """Members (workers and servers) that the first generation waits for."""
    min_nodes: _Number = 1
    """Workers without whom no generation is formed."""
    min_servers: int = 0
    """Servers without whom no generation is formed."""
    max_members: _Number = 1024
    """Members and joiners at a time; more are refused."""
    heartbeat_seconds: _Seconds = 1.0
    """Between two signs of life of a member."""
    heartbeat_timeout_seconds: _Seconds = 5.0
    """A member that was not heard of for so long is out."""
    reconnect_seconds: float = 0.25
    """A member whose connection has ended is out unless it comes back this soon."""
    return_seconds: float = 1.5
    """The same after the coordinator's own restart, when others say that the member is gone."""
    join_window_seconds: float = 0.25
    """The first who wants to join waits this long for others who come at the same time."""
    join_interval_seconds: float = 1.0
    """Between a generation and the next one that only lets somebody join."""
    progress_timeout_seconds: float = 5.0
    """A member that others suspect is out if it made no step (or formed nothing) for so long."""
    suspicion_seconds: float = 1.0
    """Between the first suspicion and the verdict, so that everybody can tell whom they wait for."""
    forming_timeout_seconds: _Seconds = 30.0
    """Who has not formed a generation so long after its announcement is out of the next one."""
    message_seconds: _Seconds = 3.0
    """Between two messages to members that wait."""

    def check(self) -> None:
        if self.min_nodes + self.min_servers > self.expect:
            raise FieldError(
                ("expect",),
                f"{self.expect} members are fewer than min_nodes = {self.min_nodes} and "
                f"min_servers = {self.min_servers} together; expect at least as many",
            )
        if self.heartbeat_timeout_seconds < 2 * self.heartbeat_seconds:
            raise FieldError(
                ("heartbeat_timeout_seconds",),
                f"{self.heartbeat_timeout_seconds:g} s leaves no room for one late heartbeat (they come every "
                f"{self.heartbeat_seconds:g} s); give at least {2 * self.heartbeat_seconds:g}",
            )


@dataclass(kw_only=True)
class RosterState(StrictRecord):
    """The part of the roster that outlives its process."""

    number: Count = 0
    """Of the last announced generation."""
    generation: Generation | None = None
    reason: Text = ""
    """Of the last announcement."""
    formed: Flag = False
    """Whether all members have formed the announced generation."""
    interrupted: Flag = False
    """Whether it has lost somebody since, so that there must be another one."""
    formed_members: dict[Text, Text] = field(default_factory=dict)
    """The last formed generation: the id of each incarnation."""
    ended: set[Text] = field(default_factory=set)
    """Incarnations of these that are known to have ended, or that know that they are out."""
    out: dict[Text, Text] = field(default_factory=dict)
    """Incarnations that are refused, with the reason."""
    banned: dict[Text, Text] = field(default_factory=dict)
    """Ids that are out for good, and why: what they sent was malformed, and would be again."""
    finished: set[Text] = field(default_factory=set)
    """Ids of members that have come to the end of the run."""
    facts: dict[Text, Text] | None = None
    position: Position = START


@dataclass
class RosterEntry:
    """What is known of one member."""

    info: MemberInfo
    link: int | None
    deadline: float
    """When it is out, unless it is heard of before."""
    came: float
    progressed: float
    position: Position = START
    formed: bool = False
    lost: str = ""
    """Why it does not count any more; until the next generation is announced it may come back."""
    ended: bool = False
    """Whether its connection has ended, so that it need not be feared to go on somewhere unseen."""
    restored: bool = False
    """Whether it is known from the state file only."""


def listed(ids: Iterable[str]) -> str:
    """Names in a sentence; not a thousand of them."""
    names = list(ids)
    shown = ", ".join(names[:8]) or "nobody"
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} more"


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
