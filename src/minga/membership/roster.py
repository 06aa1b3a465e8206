"""The rules of membership as a state machine: events in, messages out; no sockets, no threads, no clock of its own.

    roster = Roster(Rules(expect=2), now=0.0)
    roster.hello(0.1, link=1, hello=Hello(info=...))     # `link` is the caller's number for a connection
    for effect in roster.take_effects(): ...             # Send(link, message), Close(link, message)

    GATHERING ──expect members──> FORMING n ──all say formed──> FORMED n
                                     ^  ^                          │ somebody lost, left, or joiners
                                     │  └─────── enough left ──────┤
                                     │                             v too few left
                                     └──── enough again ─────── WAITING

Invariants: numbers of generations only grow. Of the last *formed* generation, at least as many are in the next one as
have gone silent (`rules.py`). Who was left out once is refused from then on. What is to survive the coordinator is
in `RosterState`; `version` counts its changes.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from minga.errors import ProtocolError
from minga.membership.messages import (
    Alive,
    Announcement,
    Formed,
    FromCoordinator,
    FromMember,
    Heartbeat,
    Hello,
    Interrupted,
    Leave,
    Refusal,
    Suspect,
    Waiting,
    Welcome,
)
from minga.membership.rules import RosterEntry, RosterState, Rules, listed, natural, objection, obstacle
from minga.membership.suspicion import Retries, Suspicions
from minga.net.generation import Generation, MemberInfo, Position, new_secret

__all__ = ["Close", "Roster", "Send"]

# Ticks come ten times a second. A longer pause means that this process stood still, not that members were silent.
_PAUSE_SECONDS = 1.0
_MOST_REMEMBERED = 4096
# So often may somebody send one other member something malformed; most of the others need to say it only once.
_MOST_WRONGS = 3


@dataclass(frozen=True)
class Send:
    """Send a message."""

    link: int
    message: FromCoordinator


@dataclass(frozen=True)
class Close:
    """Send a last message, if there is one, and end the connection; report it if the other side did, too."""

    link: int
    message: FromCoordinator | None = None


class Roster:
    """Who is in the run: every event happens at `now`, in seconds of any clock that only grows."""

    def __init__(self, rules: Rules, *, now: float, state: RosterState | None = None) -> None:
        self._rules = rules
        self.state = state or RosterState()
        self.version = 0
        """Changes so far of what a restarted coordinator must know."""
        self.members: dict[str, RosterEntry] = {}
        self.waiting: dict[str, RosterEntry] = {}
        self._suspicions = Suspicions()
        self._effects: list[Send | Close] = []
        self._losses: list[str] = []
        """Why the generation is over; empty while it is not."""
        self._interruption_sent = False
        self._dismissed: dict[int, str] = {}
        self._wrongs: Counter[str] = Counter()
        """By incarnation: in how many generations others have said that it sent something malformed."""
        self._retries = Retries(rules.heartbeat_timeout_seconds)
        self._settled = now
        self._last = self._announced = self._messaged = now
        if self.state.generation is not None:
            self._restore(now, self.state.generation)

    def _restore(self, now: float, generation: Generation) -> None:
        """After a restart: everybody who was there may come back, with a second more than usual to notice."""
        deadline = now + self._rules.heartbeat_timeout_seconds + 1
        for info in generation.members:
            if info.incarnation not in self.state.out:
                self.members[info.id] = RosterEntry(
                    info, None, deadline, now, now, self.state.position, formed=self.state.formed, restored=True
                )
        if self.state.interrupted:
            self._losses = ["a member was lost before the coordinator came back"]

    # What happens

    def objection(self, hello: Hello) -> str:
        """Why somebody can't take part; empty if it can. Changes nothing."""
        known = self.members.get(hello.info.id) or self.waiting.get(hello.info.id)
        return objection(self._rules, self.state, hello, known, len(self._everybody))

    def hello(self, now: float, link: int, hello: Hello) -> str:
        """Somebody comes, or comes back; why it may not, as `objection` says."""
        self._pass_time(now)
        reason = self.objection(hello)
        if reason:
            if hello.info.incarnation in self.state.formed_members:
                self.state.ended.add(hello.info.incarnation)  # it knows now, so it goes on nowhere
                self.version += 1
            self._effects.append(Close(link, Refusal(reason=reason)))
            self._advance(now)
            return reason
        rules = self._rules
        if self.state.facts is None:
            self.state.facts = dict(hello.facts)
        welcome = Welcome(
            heartbeat_seconds=rules.heartbeat_seconds, heartbeat_timeout_seconds=rules.heartbeat_timeout_seconds
        )
        self._effects.append(Send(link, welcome))
        entry = self._find(hello.info)
        if entry is not None:
            self._come_back(now, link, entry, hello)
        else:
            old = self.members.get(hello.info.id)
            if old is not None:
                self._put_out(old, f"a newer process of {old.info.id} has taken its place")
            deadline = now + rules.heartbeat_timeout_seconds
            self.waiting[hello.info.id] = RosterEntry(hello.info, link, deadline, now, now, hello.position)
            if self._interrupted:
                self._settle(now, rules.join_window_seconds)
            if self.state.generation is None:
                self._messaged = now - rules.message_seconds  # who comes early learns at once whom it waits for
        self._advance(now)
        return ""

    def _come_back(self, now: float, link: int, entry: RosterEntry, hello: Hello) -> None:
        """The same process on a new connection: the old one broke, or the coordinator was away."""
        self._close(entry)
        self._find_again(now, entry)
        entry.link, entry.ended, entry.restored = link, False, False
        entry.position, entry.progressed = hello.position, now
        entry.deadline = now + self._rules.heartbeat_timeout_seconds
        generation = self.state.generation
        if generation is None or entry.info.id not in self.members:
            return
        if hello.generation > self.state.number:
            # The state file was older than the run (a full disk?): go on from the run's number.
            self.state.number = hello.generation
            self._interrupt("the coordinator had lost track of the generation")
        if self._interrupted:
            self._send(entry, self._interruption())
        elif hello.generation < generation.number:
            self._send(entry, self._announcement(generation))
        if hello.formed == generation.number:
            self._set_formed(now, entry)

    def receive(self, now: float, link: int, message: FromMember | FromCoordinator) -> None:
        """What somebody says after the hello; `ProtocolError` for what is not a member's to say."""
        if not isinstance(message, Heartbeat | Formed | Suspect | Leave):
            raise ProtocolError(f"a member does not send {type(message).__name__.lower()!r} here")
        self._pass_time(now)
        entry = self._of_link(link)
        if entry is not None:
            match message:
                case Heartbeat():
                    self._heartbeat(now, entry, message)
                case Formed():
                    if entry.info.id in self.members and message.generation == self.state.number:
                        self._set_formed(now, entry)
                case Suspect():
                    self._suspect(now, entry, message)
                case Leave():
                    self._leave(entry, message)
        self._advance(now)

    def _heartbeat(self, now: float, entry: RosterEntry, heartbeat: Heartbeat) -> None:
        self._find_again(now, entry)
        entry.deadline = now + self._rules.heartbeat_timeout_seconds
        if heartbeat.position != entry.position:
            entry.position, entry.progressed = heartbeat.position, now
            if self.state.formed and entry.info.id in self.members:
                self._retries.succeeded(entry.info.id)
        self._send(entry, Alive(number=heartbeat.number))

    def _suspect(self, now: float, accuser: RosterEntry, suspect: Suspect) -> None:
        """A member did not get an answer from another one; what is said about earlier generations is old news."""
        accused = self.members.get(suspect.id)
        if accuser.info.id not in self.members or accused is None or accused is accuser:
            return
        if suspect.generation == self.state.number:
            self._suspicions.add(
                now, suspect.id, accuser.info.id, suspect.why, broken=suspect.broken, wrong=suspect.wrong
            )
            if accused.link is None:
                grace = self._rules.return_seconds if accused.restored else self._rules.reconnect_seconds
                accused.deadline = min(accused.deadline, now + grace)

    def _leave(self, entry: RosterEntry, leave: Leave) -> None:
        self._close(entry)
        if entry.info.id in self.waiting:
            del self.waiting[entry.info.id]
        elif leave.finished:
            self.state.finished.add(entry.info.id)
            self._forget(entry, "it has finished")
        else:
            self._put_out(entry, f"{entry.info.id} has left")

    def ended(self, now: float, link: int, *, by_peer: bool = True) -> None:
        """A connection has ended. A member gets a moment to come back; a dead process does not.

        `by_peer`: the other side ended it, so it is not just the network that is silent.
        """
        self._pass_time(now)
        if by_peer:
            self._hung_up(link)
        entry = self._of_link(link)
        if entry is not None:
            entry.link = None
            if entry.info.id in self.waiting:
                del self.waiting[entry.info.id]
            else:
                entry.ended = by_peer
                entry.deadline = min(entry.deadline, now + self._rules.reconnect_seconds)
        self._advance(now)

    def tick(self, now: float) -> None:
        """Time has passed; call this several times a second."""
        self._pass_time(now)
        self._advance(now)

    # What follows

    def take_effects(self) -> list[Send | Close]:
        """What is to be sent since the last call, in order. Save the state first, if `version` has changed."""
        effects, self._effects = self._effects, []
        return effects

    @property
    def done(self) -> bool:
        """Whether the run has ended well: somebody has finished, and nobody is left."""
        return bool(self.state.finished) and not self.members

    def knows(self, info: MemberInfo) -> bool:
        """Whether this very process is a member or waits to be one."""
        return self._find(info) is not None

    # From one generation to the next

    def _pass_time(self, now: float) -> None:
        gap = now - self._last
        self._last = now
        if gap > _PAUSE_SECONDS:
            for entry in self._everybody:
                entry.deadline += gap
                entry.progressed += gap
            self._suspicions.shift(gap)
            self._retries.shift(gap)
            self._announced += gap

    def _advance(self, now: float) -> None:
        self._expire(now)
        self._judge(now)
        generation, rules = self.state.generation, self._rules
        if generation is None:
            everybody = list(self.waiting.values())
            if len(everybody) >= rules.expect and not self._obstacle(everybody):
                self._announce(now, f"all {len(everybody)} members are here", everybody)
        elif self._losses:
            whole = len(self._present()) == len(self.members) and not self.waiting
            joining = self._joining(now)
            if self._obstacle([*self._present(), *joining]):  # nobody trains who could be disturbed: all who are here
                joining = list(self.waiting.values())
            if (whole or now >= self._settled) and not self._obstacle([*self._present(), *joining]):
                self._announce(now, "; ".join(self._losses), joining)
            elif not self._interruption_sent:
                self._interruption_sent = True
                self._messaged = now - rules.message_seconds
                self._send_all(self._interruption())
        elif (joining := self._joining(now)) and self.state.formed and not self._obstacle(self._present()):
            first = min(entry.came for entry in joining)
            if now >= max(first + rules.join_window_seconds, self._announced + rules.join_interval_seconds):
                self._announce(now, f"{listed(entry.info.id for entry in joining)} joined", joining)
        if now >= self._messaged + rules.message_seconds:
            if obstacle := self.why_waiting:
                self._messaged = now
                self._send_all(Waiting(message=obstacle))
            elif waiting := [entry for entry in self.waiting.values() if self._retries.due(entry.info.id) > now]:
                self._messaged = now
                for entry in waiting:
                    self._send(entry, Waiting(message=self._retries.why(entry.info.id)))

    @property
    def why_waiting(self) -> str:
        """Why there is no (next) generation, in words for the members; empty if there is nothing to wait for."""
        if self.state.generation is None:
            here, rules = len(self.waiting), self._rules
            if here < rules.expect:
                return f"{here} of {rules.expect} members are here ({listed(self.waiting)}); waiting for more"
            return self._obstacle(list(self.waiting.values()))
        if not self._losses:
            return ""
        return f"{'; '.join(self._losses)}. Now: {self._obstacle([*self._present(), *self.waiting.values()])}"

    def _expire(self, now: float) -> None:
        for entry in [entry for entry in self.waiting.values() if now >= entry.deadline]:
            del self.waiting[entry.info.id]
            self._close(entry, Refusal(reason=f"{entry.info.id} was silent for too long"))
        for entry in self.members.values():
            if not entry.lost and now >= entry.deadline:
                timeout = self._rules.heartbeat_timeout_seconds
                silence = f"gave no sign of life for {timeout:g} s" if not entry.restored else "did not come back"
                entry.lost = f"{entry.info.id} is gone: " + ("its connection ended" if entry.ended else silence)
                self._interrupt(entry.lost)
        generation, rules = self.state.generation, self._rules
        late = generation is not None and not self.state.formed and not self._losses
        if late and now >= self._announced + rules.forming_timeout_seconds:
            why = f"generation {self.state.number} was not formed within {rules.forming_timeout_seconds:g} s"
            slow = [entry for entry in self._present() if not entry.formed]
            if self._can_do_without(slow):
                for entry in slow:
                    self._put_out_for_now(now, entry, f"{why} by {entry.info.id}")
            else:
                self._interrupt(why)  # nobody in particular is late: once more, with everybody

    def _judge(self, now: float) -> None:
        """Put out whoever stands still and makes others wait; re-form where only a connection broke."""
        if self._losses:
            return
        rules, suspicions, formed = self._rules, self._suspicions, self.state.formed
        for suspect, accusers in suspicions.wrong().items():
            if 2 * len(accusers) > len(self.members) - 1:
                self._ban(suspect, accusers)
        if self._losses:
            return
        here = {id: entry for id, entry in self.members.items() if entry.link is not None}
        # By then the connection of a dead process to the coordinator has ended too.
        for id, by, why in suspicions.broken(now - 2 * rules.reconnect_seconds):
            if formed and id in here and by in here:
                self._count_wrongs()
                self._interrupt(f"{by} lost its connection to {id} ({why})")
                return
        stalled = set()
        for id, entry in here.items():
            # Who still makes steps has not heard of the new generation yet.
            since = entry.progressed if formed else max(self._announced, entry.progressed)
            if (formed or not entry.formed) and now >= since + rules.progress_timeout_seconds:
                stalled.add(id)
        if not formed:  # a connection that is refused when re-forming will be refused again: that is soon clear
            stalled |= {id for id, _, _ in suspicions.broken(now) if id in here and not here[id].formed}
        if formed and (circle := suspicions.circle(now - rules.suspicion_seconds, stalled, list(self.members))):
            # Where a link between them is cut, connecting shows it; where their program is wrong, they find that out.
            self._interrupt(circle)
            return
        for id, why in suspicions.verdict(now - rules.suspicion_seconds, stalled, list(self.members)):
            entry = self.members[id]
            if self._can_do_without([entry]):
                self._put_out_for_now(now, entry, why)

    def _put_out_for_now(self, now: float, entry: RosterEntry, why: str) -> None:
        """Others and it could not connect, or not train; it may try again, but not at once, and ever later."""
        self._retries.failed(now, entry.info.id, why)
        self._put_out(entry, why, silent=True)

    def _joining(self, now: float) -> list[RosterEntry]:
        """Who waits and may be in the next generation."""
        return [entry for entry in self.waiting.values() if now >= self._retries.due(entry.info.id)]

    def _count_wrongs(self) -> None:
        """Before all re-form: who has sent malformed messages once too often."""
        for id, by in self._suspicions.wrong().items():
            if (entry := self.members.get(id)) is not None:
                self._wrongs[entry.info.incarnation] += 1
                if self._wrongs[entry.info.incarnation] >= _MOST_WRONGS:
                    self._ban(id, by)

    def _ban(self, id: str, by: Mapping[str, str]) -> None:
        entry = self.members.get(id)
        if entry is not None and self._can_do_without([entry]):
            accuser = min(by)
            reason = f"{id} sent something malformed, says {accuser} ({by[accuser]})"
            self.state.banned[id] = reason
            self._put_out(entry, reason, silent=True)

    def _can_do_without(self, leaving: Collection[RosterEntry]) -> bool:
        """Whether the others may go on, and one of them has the state."""
        stay = [entry for entry in self._present() if entry not in leaving]
        before = self.state.formed_members
        if before and not any(entry.info.incarnation in before for entry in stay):
            return False
        return bool(stay) and not self._obstacle(stay)

    def _obstacle(self, candidates: Collection[RosterEntry]) -> str:
        """Why these can't be the next generation; empty if they can."""
        absent = [entry.info.id for entry in candidates if entry.link is None]
        if absent:  # for a moment only: they come back, or are out
            return f"waiting for {listed(absent)} to come back"
        lost = {entry.info.incarnation for entry in self.members.values() if entry.lost and entry.ended}
        return obstacle(self._rules, self.state, [entry.info for entry in candidates], self.state.ended | lost)

    def _announce(self, now: float, reason: str, joining: Collection[RosterEntry]) -> None:
        """The next generation: workers first, in the old order with newcomers behind them; then servers.

        Servers are in the order of their ids: each has a part of its own, also when it was started again.
        """
        for entry in [entry for entry in self.members.values() if entry.lost]:
            self._put_out(entry, entry.lost, silent=not entry.ended)
        joined = sorted(joining, key=lambda entry: natural(entry.info))
        workers = [entry for entry in (*self.members.values(), *joined) if entry.info.role == "worker"]
        servers = [entry for entry in (*self.members.values(), *joined) if entry.info.role != "worker"]
        entries = [*workers, *sorted(servers, key=lambda entry: natural(entry.info))]
        state = self.state
        state.number += 1
        members = tuple(entry.info for entry in entries)
        state.generation = Generation(number=state.number, members=members, secret=new_secret())
        state.formed, state.interrupted, state.reason = False, False, reason
        if self.members:  # otherwise what the last one that is gone has reported
            state.position = functools.reduce(Position.further, [entry.position for entry in self.members.values()])
        self.members = {entry.info.id: entry for entry in entries}
        self.waiting = {id: entry for id, entry in self.waiting.items() if id not in self.members}
        for entry in entries:
            entry.formed, entry.progressed = False, now
        self._suspicions = Suspicions()
        self._losses, self._interruption_sent = [], False
        self._announced = now
        self.version += 1
        for entry in entries:
            self._send(entry, self._announcement(state.generation))

    def _announcement(self, generation: Generation) -> Announcement:
        before = self.state.formed_members
        survivors = tuple(info.id for info in generation.members if info.incarnation in before)
        return Announcement(
            generation=generation, position=self.state.position, survivors=survivors, reason=self.state.reason
        )

    def _set_formed(self, now: float, entry: RosterEntry) -> None:
        if entry.formed:
            return
        entry.formed, entry.progressed = True, now
        if not self.state.formed and not self._losses and all(other.formed for other in self.members.values()):
            self.state.formed = True
            self.state.formed_members = {other.info.incarnation: other.info.id for other in self.members.values()}
            self.state.ended.clear()
            self.version += 1

    def _hung_up(self, link: int) -> None:
        """Somebody who is out has hung up after the refusal: it knows, and has no vote any more."""
        incarnation = self._dismissed.pop(link, None)
        if incarnation in self.state.formed_members:
            self.state.ended.add(incarnation)
            self.version += 1

    def _find_again(self, now: float, entry: RosterEntry) -> None:
        """A member that was given up, but not yet left out of a generation, is heard of again."""
        if entry.lost:
            entry.lost = ""
            self._settle(now, self._rules.heartbeat_seconds + self._rules.join_window_seconds)

    def _settle(self, now: float, seconds: float) -> None:
        """Whoever comes (back) to a generation that waits is seldom the only one: give the others a moment."""
        if now >= self._settled:
            self._settled = now + seconds

    def _interrupt(self, reason: str) -> None:
        self._losses = [*self._losses[-3:], reason]  # the last ones say enough
        self._interruption_sent = False
        if not self.state.interrupted:
            self.state.interrupted = True
            self.version += 1

    @property
    def _interrupted(self) -> bool:
        """Whether the generation is over, and its members know."""
        return bool(self._losses) and self._interruption_sent

    def _interruption(self) -> Interrupted:
        return Interrupted(generation=self.state.number, reason="; ".join(self._losses))

    def _put_out(self, entry: RosterEntry, reason: str, *, silent: bool = False) -> None:
        """For good: this process is refused from now on. `silent`: it may not know, and go on somewhere."""
        if entry.link is not None:
            self._dismissed[entry.link] = entry.info.incarnation
            self._close(entry, Refusal(reason=reason))
        if not entry.lost:
            self._interrupt(reason)
        self._forget(entry, reason, silent=silent)

    def _forget(self, entry: RosterEntry, reason: str, *, silent: bool = False) -> None:
        del self.members[entry.info.id]
        state = self.state
        state.position = state.position.further(entry.position)
        state.out[entry.info.incarnation] = reason
        while len(state.out) > _MOST_REMEMBERED:
            del state.out[next(iter(state.out))]
        if not silent and entry.info.incarnation in state.formed_members:
            state.ended.add(entry.info.incarnation)
        self.version += 1

    def _present(self) -> list[RosterEntry]:
        return [entry for entry in self.members.values() if not entry.lost]

    def _send(self, entry: RosterEntry, message: FromCoordinator) -> None:
        if entry.link is not None:  # one whose connection has just ended may come back for it
            self._effects.append(Send(entry.link, message))

    def _send_all(self, message: FromCoordinator) -> None:
        for entry in self._everybody:
            self._send(entry, message)

    def _close(self, entry: RosterEntry, message: Refusal | None = None) -> None:
        if entry.link is not None:
            self._effects.append(Close(entry.link, message))
            entry.link = None

    @property
    def _everybody(self) -> list[RosterEntry]:
        return [*self.members.values(), *self.waiting.values()]

    def _find(self, info: MemberInfo) -> RosterEntry | None:
        known = self.members.get(info.id) or self.waiting.get(info.id)
        return known if known is not None and known.info == info else None

    def _of_link(self, link: int) -> RosterEntry | None:
        return next((entry for entry in self._everybody if entry.link == link), None)
