"""The rules of membership as a state machine: events in, messages out; no sockets, no threads, no clock of its own.

    roster = Roster(Rules(expect=2), now=0.0)
    roster.hello(0.1, link=1, hello=Hello(info=...))     # `link` is the caller's number for a connection
    for effect in roster.take_effects(): ...             # Tell(link, message), Close(link, message)

    GATHERING ──expect members──> FORMING n ──all say formed──> FORMED n
                                     ^  ^                          │ somebody lost, left, or joiners
                                     │  └─────── enough left ──────┤
                                     │                             v too few left
                                     └──── enough again ─────── WAITING

Invariants: numbers of generations only grow. Of the last *formed* generation, at least as many are in the next one as
have gone silent (`quorum.py`). Who was left out once is refused from then on. What is to survive the coordinator is in
`RosterState`; `version` counts its changes.
"""

from __future__ import annotations

from minga.membership.admission import objection
from minga.membership.entries import Close, Entry, Tell
from minga.net.generation import MemberInfo
from minga.membership.messages import Alive, Formed, Heartbeat, Hello, Leave, Refusal, Suspect, Welcome
from minga.membership.succession import Succession

__all__ = ["Roster"]


class Roster(Succession):
    """Who is in the run: every method is something that happens at `now`, in seconds of any clock that only grows."""

    def objection(self, hello: Hello) -> str:
        """Why somebody can't take part; empty if it can. Changes nothing."""
        if hello.info.id in self.state.banned:
            return f"{hello.info.id} is out of this run for good: {self.state.banned[hello.info.id]}"
        known = self.members.get(hello.info.id) or self.waiting.get(hello.info.id)
        there = len(self.members) + len(self.waiting)
        return objection(self.rules, self.state, hello, known, there)

    def hello(self, now: float, link: int, hello: Hello) -> bool:
        """Somebody comes, or comes back; whether it may."""
        self.pass_time(now)
        reason = self.objection(hello)
        if reason:
            if hello.info.incarnation in self.state.formed_members:
                self.state.ended.add(hello.info.incarnation)  # it has been told, so it goes on nowhere
                self.version += 1
            self.effects.append(Close(link, Refusal(reason=reason)))
            self.advance(now)
            return False
        rules = self.rules
        if self.state.facts is None:
            self.state.facts = dict(hello.facts)
        self.effects.append(
            Tell(
                link,
                Welcome(
                    heartbeat_seconds=rules.heartbeat_seconds, heartbeat_timeout_seconds=rules.heartbeat_timeout_seconds
                ),
            )
        )
        entry = self._find(hello.info)
        if entry is not None:
            self._come_back(now, link, entry, hello)
        else:
            old = self.members.get(hello.info.id)
            if old is not None:
                self.put_out(old, f"a newer process of {old.info.id} has taken its place")
            deadline = now + rules.heartbeat_timeout_seconds
            self.waiting[hello.info.id] = Entry(hello.info, link, deadline, now, now, hello.position)
            if self.interrupted:
                self.settle(now, rules.join_window_seconds)
            if self.state.generation is None:
                self._messaged = now - rules.message_seconds  # who comes early is told at once whom it waits for
        self.advance(now)
        return True

    def _come_back(self, now: float, link: int, entry: Entry, hello: Hello) -> None:
        """The same process on a new connection: the old one broke, or the coordinator was away."""
        if entry.link is not None:
            self.effects.append(Close(entry.link))
        self.find_again(now, entry)
        entry.link, entry.ended, entry.restored = link, False, False
        entry.position, entry.progressed = hello.position, now
        entry.deadline = now + self.rules.heartbeat_timeout_seconds
        generation = self.state.generation
        if generation is None or entry.info.id not in self.members:
            return
        if hello.generation > self.state.number:
            # The state file was older than the run (a full disk?): go on from the run's number.
            self.state.number = hello.generation
            self.interrupt("the coordinator had lost track of the generation")
        if self.interrupted:
            self.effects.append(Tell(link, self.interruption()))
        elif hello.generation < generation.number:
            self.effects.append(Tell(link, self.announcement(generation)))
        if hello.formed == generation.number:
            self.set_formed(now, entry)

    def heartbeat(self, now: float, link: int, heartbeat: Heartbeat) -> None:
        self.pass_time(now)
        entry = self._of_link(link)
        if entry is None:
            return
        self.find_again(now, entry)
        entry.deadline = now + self.rules.heartbeat_timeout_seconds
        if heartbeat.position != entry.position:
            entry.position, entry.progressed = heartbeat.position, now
            if self.state.formed and entry.info.id in self.members:
                self.retries.succeeded(entry.info.id)
        self.effects.append(Tell(link, Alive(number=heartbeat.number)))
        self.advance(now)

    def formed(self, now: float, link: int, formed: Formed) -> None:
        self.pass_time(now)
        entry = self._of_link(link)
        if entry is not None and entry.info.id in self.members and formed.generation == self.state.number:
            self.set_formed(now, entry)
        self.advance(now)

    def suspect(self, now: float, link: int, suspect: Suspect) -> None:
        """A member did not get an answer from another one; what is said about earlier generations is old news."""
        self.pass_time(now)
        accuser, accused = self._of_link(link), self.members.get(suspect.id)
        if accuser is None or accuser.info.id not in self.members or accused is None or accused is accuser:
            return
        if suspect.generation == self.state.number:
            self.suspicions.add(
                now, suspect.id, accuser.info.id, suspect.why, broken=suspect.broken, wrong=suspect.wrong
            )
            if accused.link is None:
                grace = self.rules.return_seconds if accused.restored else self.rules.reconnect_seconds
                accused.deadline = min(accused.deadline, now + grace)
        self.advance(now)

    def leave(self, now: float, link: int, leave: Leave) -> None:
        self.pass_time(now)
        entry = self._of_link(link)
        if entry is not None:
            self.effects.append(Close(link))
            entry.link = None
            if entry.info.id in self.waiting:
                del self.waiting[entry.info.id]
            elif leave.finished:
                self.state.finished.add(entry.info.id)
                self.forget(entry, "it has finished")
            else:
                self.put_out(entry, f"{entry.info.id} has left")
        self.advance(now)

    def ended(self, now: float, link: int, *, by_peer: bool = True) -> None:
        """A connection has ended. A member gets a moment to come back; a dead process does not.

        `by_peer`: the other side ended it, so it is not just the network that is silent.
        """
        self.pass_time(now)
        if by_peer:
            self.dismissed(link)
        entry = self._of_link(link)
        if entry is not None:
            entry.link = None
            if entry.info.id in self.waiting:
                del self.waiting[entry.info.id]
            else:
                entry.ended = by_peer
                entry.deadline = min(entry.deadline, now + self.rules.reconnect_seconds)
        self.advance(now)

    def tick(self, now: float) -> None:
        """Time has passed; call this several times a second."""
        self.pass_time(now)
        self.advance(now)

    def take_effects(self) -> list[Tell | Close]:
        """What is to be sent since the last call, in order. Save the state first, if `version` has changed."""
        effects, self.effects = self.effects, []
        return effects

    @property
    def done(self) -> bool:
        """Whether the run has ended well: somebody has finished, and nobody is left."""
        return bool(self.state.finished) and not self.members

    def knows(self, info: MemberInfo) -> bool:
        """Whether this very process is a member or waits to be one."""
        return self._find(info) is not None

    def _find(self, info: MemberInfo) -> Entry | None:
        known = self.members.get(info.id) or self.waiting.get(info.id)
        return known if known is not None and known.info == info else None

    def _of_link(self, link: int) -> Entry | None:
        return next((e for e in (*self.members.values(), *self.waiting.values()) if e.link == link), None)
