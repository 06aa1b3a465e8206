"""From one generation to the next: who is out, whether the others may go on, what is announced.

    succession.pass_time(now); succession.advance(now)

`Roster` feeds it with what happens; together they are one state machine, in two files for people who read.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Mapping

from minga.membership.admission import natural
from minga.membership.entries import Close, Entry, Tell, listed
from minga.membership.generation import Generation, Position, new_secret
from minga.membership.messages import Announcement, FromCoordinator, Interrupted, Refusal, Waiting
from minga.membership.quorum import obstacle
from minga.membership.retries import Retries
from minga.membership.roster_state import RosterState
from minga.membership.rules import Rules
from minga.membership.suspicion import Suspicions

__all__ = ["Succession"]

# Ticks come ten times a second. A longer pause means that this process stood still, not that members were silent.
_PAUSE_SECONDS = 1.0
_MOST_REMEMBERED = 4096
# So often may somebody send one other member what can't be; most of the others need to say it only once.
_MOST_WRONGS = 3


class Succession:
    """The members, those who want to be, and when the next generation is due."""

    def __init__(
        self,
        rules: Rules,
        *,
        now: float,
        state: RosterState | None = None,
        secret: Callable[[], str] = new_secret,
    ) -> None:
        self.rules = rules
        self.state = state or RosterState()
        self.version = 0
        """Changes so far of what a restarted coordinator must know."""
        self.members: dict[str, Entry] = {}
        self.waiting: dict[str, Entry] = {}
        self.suspicions = Suspicions()
        self.effects: list[Tell | Close] = []
        self._secret = secret
        self._losses: list[str] = []
        """Why the generation is over; empty while it is not."""
        self._told_interruption = False
        self._dismissed: dict[int, str] = {}
        self._wrongs: Counter[str] = Counter()
        """By incarnation: in how many generations others have said that it sent what can't be."""
        self.retries = Retries(rules.heartbeat_timeout_seconds)
        self._settled = now
        self._last = self._announced = self._messaged = now
        if self.state.generation is not None:
            self._restore(now, self.state.generation)

    def _restore(self, now: float, generation: Generation) -> None:
        """After a restart: everybody who was there may come back, with a second more than usual to notice."""
        deadline = now + self.rules.heartbeat_timeout_seconds + 1
        for info in generation.members:
            if info.incarnation not in self.state.out:
                self.members[info.id] = Entry(info, None, deadline, now, now, self.state.position, restored=True)
                self.members[info.id].formed = self.state.formed
        if self.state.interrupted:
            self._losses = ["a member was lost before the coordinator came back"]

    def pass_time(self, now: float) -> None:
        gap = now - self._last
        self._last = now
        if gap > _PAUSE_SECONDS:
            for entry in (*self.members.values(), *self.waiting.values()):
                entry.deadline += gap
                entry.progressed += gap
            self.suspicions.shift(gap)
            self.retries.shift(gap)
            self._announced += gap

    def advance(self, now: float) -> None:
        self._expire(now)
        self._judge(now)
        generation, rules = self.state.generation, self.rules
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
            elif not self._told_interruption:
                self._told_interruption = True
                self._messaged = now - rules.message_seconds
                self._tell_all(self.interruption())
        elif (joining := self._joining(now)) and self.state.formed and not self._obstacle(self._present()):
            first = min(entry.came for entry in joining)
            if now >= max(first + rules.join_window_seconds, self._announced + rules.join_interval_seconds):
                self._announce(now, f"{listed(entry.info.id for entry in joining)} joined", joining)
        if now >= self._messaged + rules.message_seconds:
            if obstacle := self.why_waiting:
                self._messaged = now
                self._tell_all(Waiting(message=obstacle))
            elif waiting := [entry for entry in self.waiting.values() if self.retries.due(entry.info.id) > now]:
                self._messaged = now
                for entry in waiting:
                    assert entry.link is not None
                    self.effects.append(Tell(entry.link, Waiting(message=self.retries.why(entry.info.id))))

    @property
    def why_waiting(self) -> str:
        """Why there is no (next) generation, in words for the members; empty if there is nothing to wait for."""
        if self.state.generation is None:
            here, rules = len(self.waiting), self.rules
            if here < rules.expect:
                return f"{here} of {rules.expect} members are here ({listed(self.waiting)}); waiting for more"
            return self._obstacle(list(self.waiting.values()))
        if not self._losses:
            return ""
        return f"{'; '.join(self._losses)}. Now: {self._obstacle([*self._present(), *self.waiting.values()])}"

    def _expire(self, now: float) -> None:
        for entry in [entry for entry in self.waiting.values() if now >= entry.deadline]:
            del self.waiting[entry.info.id]
            assert entry.link is not None
            self.effects.append(Close(entry.link, Refusal(reason=f"{entry.info.id} was silent for too long")))
        for entry in self.members.values():
            if not entry.lost and now >= entry.deadline:
                timeout = self.rules.heartbeat_timeout_seconds
                silence = f"gave no sign of life for {timeout:g} s" if not entry.restored else "did not come back"
                entry.lost = f"{entry.info.id} is gone: " + ("its connection ended" if entry.ended else silence)
                self.interrupt(entry.lost)
        generation, rules = self.state.generation, self.rules
        late = generation is not None and not self.state.formed and not self._losses
        if late and now >= self._announced + rules.forming_timeout_seconds:
            why = f"generation {self.state.number} was not formed within {rules.forming_timeout_seconds:g} s"
            slow = [entry for entry in self._present() if not entry.formed]
            if self._can_do_without(slow):
                for entry in slow:
                    self._put_out_for_now(now, entry, f"{why} by {entry.info.id}")
            else:
                self.interrupt(why)  # nobody in particular is late: once more, with everybody

    def _judge(self, now: float) -> None:
        """Put out whoever stands still and makes others wait; form anew where only a connection broke."""
        if self._losses:
            return
        rules, suspicions, formed = self.rules, self.suspicions, self.state.formed
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
                self.interrupt(f"{by} lost its connection to {id} ({why})")
                return
        stalled = set()
        for id, entry in here.items():
            # Who still makes steps has not heard of the new generation yet.
            since = entry.progressed if formed else max(self._announced, entry.progressed)
            if (formed or not entry.formed) and now >= since + rules.progress_timeout_seconds:
                stalled.add(id)
        if not formed:  # a connection that is refused when forming anew will be refused again: that is soon clear
            stalled |= {id for id, _, _ in suspicions.broken(now) if id in here and not here[id].formed}
        if formed and (circle := suspicions.circle(now - rules.suspicion_seconds, stalled, list(self.members))):
            # Where a link between them is cut, connecting shows it; where their program is wrong, they find that out.
            self.interrupt(circle)
            return
        for id, why in suspicions.verdict(now - rules.suspicion_seconds, stalled, list(self.members)):
            entry = self.members[id]
            if self._can_do_without([entry]):
                self._put_out_for_now(now, entry, why)

    def _put_out_for_now(self, now: float, entry: Entry, why: str) -> None:
        """Others and it could not connect, or not train; it may try again, but not at once, and ever later."""
        self.retries.failed(now, entry.info.id, why)
        self.put_out(entry, why, silent=True)

    def _joining(self, now: float) -> list[Entry]:
        """Who waits and may be in the next generation."""
        return [entry for entry in self.waiting.values() if now >= self.retries.due(entry.info.id)]

    def _count_wrongs(self) -> None:
        """Before all form anew: whose nonsense it is because of, once too often."""
        for id, by in self.suspicions.wrong().items():
            if (entry := self.members.get(id)) is not None:
                self._wrongs[entry.info.incarnation] += 1
                if self._wrongs[entry.info.incarnation] >= _MOST_WRONGS:
                    self._ban(id, by)

    def _ban(self, id: str, by: Mapping[str, str]) -> None:
        entry = self.members.get(id)
        if entry is not None and self._can_do_without([entry]):
            accuser = min(by)
            reason = f"{id} sent what can't be, says {accuser} ({by[accuser]})"
            self.state.banned[id] = reason
            self.put_out(entry, reason, silent=True)

    def _can_do_without(self, leaving: Collection[Entry]) -> bool:
        """Whether the others may go on, and one of them has the state."""
        stay = [entry for entry in self._present() if entry not in leaving]
        before = self.state.formed_members
        if before and not any(entry.info.incarnation in before for entry in stay):
            return False
        return bool(stay) and not self._obstacle(stay)

    def _obstacle(self, candidates: Collection[Entry]) -> str:
        """Why these can't be the next generation; empty if they can."""
        absent = [entry.info.id for entry in candidates if entry.link is None]
        if absent:  # for a moment only: they come back, or are out
            return f"waiting for {listed(absent)} to come back"
        lost = {entry.info.incarnation for entry in self.members.values() if entry.lost and entry.ended}
        return obstacle(self.rules, self.state, [entry.info for entry in candidates], self.state.ended | lost)

    def _announce(self, now: float, reason: str, joining: Collection[Entry]) -> None:
        """The next generation: workers first, in the old order with newcomers behind them; then servers.

        Servers are in the order of their ids: each has a part of its own, also when it was started again.
        """
        for entry in [entry for entry in self.members.values() if entry.lost]:
            self.put_out(entry, entry.lost, silent=not entry.ended)
        joined = sorted(joining, key=lambda entry: natural(entry.info))
        workers = [entry for entry in (*self.members.values(), *joined) if entry.info.role == "worker"]
        servers = [entry for entry in (*self.members.values(), *joined) if entry.info.role != "worker"]
        entries = [*workers, *sorted(servers, key=lambda entry: natural(entry.info))]
        state = self.state
        state.number += 1
        state.generation = Generation(
            number=state.number, members=tuple(entry.info for entry in entries), secret=self._secret()
        )
        state.formed, state.interrupted, state.reason = False, False, reason
        if self.members:  # otherwise what the last one that is gone has reported
            state.position = functools.reduce(Position.further, [entry.position for entry in self.members.values()])
        self.members = {entry.info.id: entry for entry in entries}
        self.waiting = {id: entry for id, entry in self.waiting.items() if id not in self.members}
        for entry in entries:
            entry.formed, entry.progressed = False, now
        self.suspicions = Suspicions()
        self._losses, self._told_interruption = [], False
        self._announced = now
        self.version += 1
        for entry in entries:
            if entry.link is not None:  # one whose connection has just ended may come back for it
                self.effects.append(Tell(entry.link, self.announcement(state.generation)))

    def announcement(self, generation: Generation) -> Announcement:
        before = self.state.formed_members
        survivors = tuple(info.id for info in generation.members if info.incarnation in before)
        return Announcement(
            generation=generation, position=self.state.position, survivors=survivors, reason=self.state.reason
        )

    def set_formed(self, now: float, entry: Entry) -> None:
        if entry.formed:
            return
        entry.formed, entry.progressed = True, now
        if not self.state.formed and not self._losses and all(other.formed for other in self.members.values()):
            self.state.formed = True
            self.state.formed_members = {other.info.incarnation: other.info.id for other in self.members.values()}
            self.state.ended.clear()
            self.version += 1

    def dismissed(self, link: int) -> None:
        """Somebody who was told that it is out has hung up: it knows, and has no vote any more."""
        incarnation = self._dismissed.pop(link, None)
        if incarnation in self.state.formed_members:
            self.state.ended.add(incarnation)
            self.version += 1

    def find_again(self, now: float, entry: Entry) -> None:
        """A member that was given up, but not yet left out of a generation, is heard of again."""
        if entry.lost:
            entry.lost = ""
            self.settle(now, self.rules.heartbeat_seconds + self.rules.join_window_seconds)

    def settle(self, now: float, seconds: float) -> None:
        """Whoever comes (back) to a generation that waits is seldom the only one: give the others a moment."""
        if now >= self._settled:
            self._settled = now + seconds

    def interrupt(self, reason: str) -> None:
        self._losses = [*self._losses[-3:], reason]  # the last ones say enough
        self._told_interruption = False
        if not self.state.interrupted:
            self.state.interrupted = True
            self.version += 1

    @property
    def interrupted(self) -> bool:
        """Whether the generation is over, and its members know."""
        return bool(self._losses) and self._told_interruption

    def interruption(self) -> Interrupted:
        return Interrupted(generation=self.state.number, reason="; ".join(self._losses))

    def put_out(self, entry: Entry, reason: str, *, silent: bool = False) -> None:
        """For good: this process is refused from now on. `silent`: it may not know, and go on somewhere."""
        if entry.link is not None:
            self.effects.append(Close(entry.link, Refusal(reason=reason)))
            self._dismissed[entry.link] = entry.info.incarnation
            entry.link = None
        if not entry.lost:
            self.interrupt(reason)
        self.forget(entry, reason, silent=silent)

    def forget(self, entry: Entry, reason: str, *, silent: bool = False) -> None:
        del self.members[entry.info.id]
        state = self.state
        state.position = state.position.further(entry.position)
        state.out[entry.info.incarnation] = reason
        while len(state.out) > _MOST_REMEMBERED:
            del state.out[next(iter(state.out))]
        if not silent and entry.info.incarnation in state.formed_members:
            state.ended.add(entry.info.incarnation)
        self.version += 1

    def _present(self) -> list[Entry]:
        return [entry for entry in self.members.values() if not entry.lost]

    def _tell_all(self, message: FromCoordinator) -> None:
        for entry in (*self.members.values(), *self.waiting.values()):
            if entry.link is not None:
                self.effects.append(Tell(entry.link, message))
