"""The member's side of a run whose members come and go: each generation has a transport of its own.

    with MemberSession(where, id="node-3", address="127.0.0.1", facts=facts, stop=stop) as session:
        generation = session.first_generation(timeout_seconds)
        while True:
            try:
                comm = session.connect(generation, timeout_seconds)
                ...                                     # let all hear from each other
                session.formed()
                ...                                     # train; session.stepped(...) after each step
            except PeerLost as lost:
                generation, as_before = session.next_generation(lost)

When somebody dies, hangs, leaves or joins, the coordinator announces the next generation. The transport of the last one
is given up, which ends whatever a rank waits for. `training/elastic.py` has the loop.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Literal, Self

from minga.comm.tcp import DataListener, TcpTransport
from minga.errors import LeftBehind, PeerLost, PeerTimeout, Refused, RunStopped
from minga.membership.member import Change, Member
from minga.membership.protocol import CoordinatorAddress
from minga.membership.suspicion import StepTimes
from minga.net.generation import Generation, MemberInfo, new_incarnation

__all__ = ["MemberSession", "StopRequest"]

_log = logging.getLogger("minga.launch")

# How long a rank alone waits for a coordinator that has to be restarted before it gives up.
_WITHOUT_COORDINATOR_SECONDS = 60.0
_TICK_SECONDS = 1.0
# Connecting takes a few milliseconds; whom others can't reach for so long is suspected.
_CONNECTING_SECONDS = 5.0
# Who is asked to stop and waits for others meanwhile gives up after so long, or after two steps if these take longer.
_STOPPING_SECONDS = 3.0


class StopRequest:
    """Whether this process was asked to end. A signal's handler asks, so there is no lock that it might find taken."""

    def __init__(self) -> None:
        self._since: list[float] = []
        self._sessions: list[MemberSession] = []

    def ask(self, *, interrupt: bool = False) -> None:
        """`interrupt`: what the process waits for ends too."""
        self._since.append(time.monotonic())
        if interrupt:
            for session in self._sessions:
                session.interrupt()

    def interrupts(self, session: MemberSession) -> None:
        self._sessions.append(session)

    @property
    def asked(self) -> bool:
        return bool(self._since)

    @property
    def seconds(self) -> float:
        """How long ago it was asked first; below 0 if it was not."""
        return time.monotonic() - self._since[0] if self._since else -1.0


class MemberSession:
    """A process's place in the run: its door for data, and its connection to the coordinator."""

    def __init__(
        self,
        where: CoordinatorAddress,
        *,
        id: str,
        role: Literal["worker", "server"],
        address: str,
        host: str,
        facts: Mapping[str, str],
        heartbeat_timeout_seconds: float,
        patient: bool,
        stop: StopRequest,
        leaves_after: float | None,
        on_waiting: Callable[[str], None],
    ) -> None:
        """`address`: where it listens for data of other ranks; `facts`: what must be the same on all members.

        `patient`: it waits for people to start the others, however long that takes. `leaves_after`: how long after
        `stop` this process leaves while the others go on; None: all stop together. `on_waiting`: called with what it
        waits for, once for each message.
        """
        self.id = id
        self._where, self._facts, self._patient = where, facts, patient
        self._stop = stop
        self._leaves_after = leaves_after
        self._on_waiting = on_waiting
        self._left = self._gave_up = self._formed = False
        self.accused = False
        """Whether this process has waited in vain for another in the generation that is now, and has said so."""
        self._shown = ""
        self._number = 0
        self._transport: TcpTransport | None = None
        self._timeout_seconds = _WITHOUT_COORDINATOR_SECONDS
        self._steps = StepTimes(heartbeat_timeout_seconds)
        self._over = threading.Event()
        self._workers = 0
        self._door = DataListener(address, where.tls)
        self._info = MemberInfo(
            id=id, incarnation=new_incarnation(), address=address, port=self._door.port, host=host, role=role
        )
        self.member = self._come()
        if leaves_after is not None:
            self._stop.interrupts(self)
        self._watch = threading.Thread(target=self._look_for_hanging, name="minga-hanging", daemon=True)
        self._watch.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._left:  # first of all: the others wait for this process until they know
            self.interrupt()
            self.member.leave()
        if self._transport is not None:
            self._transport.close()
        if not self._left and (error is None or isinstance(error, RunStopped)):
            # Who was asked to stop is not missed either: all have been, and need not form again for it.
            self.member.leave(finished=True)
        self.member.close()
        self._door.close()
        self._watch.join()

    def _come(self) -> Member:
        member = Member(self._where, self._info, self._facts)
        member.on_change(self._changed)
        return member

    def _changed(self, change: Change) -> None:
        """In the member's thread."""
        transport, announced = self._transport, change.announcement
        if transport is not None and (announced is None or announced.generation.number > self._number):
            transport.abort(change.reason)

    def connect(self, generation: Generation, timeout_seconds: float) -> TcpTransport:
        """The transport of a generation, with everybody connected."""
        if self._transport is not None:
            self._transport.abort("the generation is over")
            self._transport.close()
        self._number, self._workers, self._timeout_seconds = generation.number, generation.workers, timeout_seconds
        self.accused = self._formed = False
        self._steps.pause()
        rank = generation.rank_of(self.id)
        self._transport = transport = TcpTransport(generation, rank, self._door, timeout_seconds)
        latest = self.member.generation
        if latest is not None and latest.number > generation.number:
            transport.abort("another generation was announced meanwhile")
        if self._steps.longest:
            # Nothing tells of packets that a firewall drops: the coordinator decides who has to go. Others may be in
            # the middle of a step and not know yet; who has made none can't tell how long that takes.
            seconds = self._connecting_seconds
            for missing in transport.not_connected_within(seconds):
                self.member.suspect(missing, f"no connection within {seconds:.0f} s", generation=generation.number)
        transport.wait_until_connected()
        return transport

    def formed(self) -> None:
        """All have heard from each other: there are connections, and they carry something."""
        self._formed = True
        self.member.formed(self._number)

    @property
    def _connecting_seconds(self) -> float:
        return max(_CONNECTING_SECONDS, 3 * self._steps.longest) if self._steps.longest else math.inf

    def first_generation(self, timeout_seconds: float, *, again: bool = False) -> Generation:
        """The first one with this process, within `timeout_seconds`; people who start others are waited for.

        `again`: it was in the run before, and waits as long as the coordinator says so.
        """
        if self._patient:  # for people, but not for a coordinator that has answered before and is gone
            timeout_seconds = min(timeout_seconds, _WITHOUT_COORDINATOR_SECONDS)
        deadline = time.monotonic() + timeout_seconds
        self._shown = ""
        while True:
            try:
                return self.member.join(_TICK_SECONDS)
            except PeerTimeout:
                self._stop_waiting_if_asked()
                if self.member.connected and (self._patient or (again and self.member.message)):
                    deadline = time.monotonic() + timeout_seconds
                elif time.monotonic() > deadline:
                    why = self.member.message or "the coordinator has said nothing"
                    raise PeerTimeout(f"nothing began within {timeout_seconds:g} s: {why}") from None
                self._show_waiting()

    def leave_if_asked(self) -> None:
        """`RunStopped` if this process was asked to go; the others then form without it."""
        if self._leaves_after is not None and self._stop.seconds >= self._leaves_after:
            self._left = True
            raise RunStopped(f"{self.id} was asked to leave the run; the others go on")

    def _stop_waiting_if_asked(self) -> None:
        """Who was asked to stop does so at the end of a step, unless that does not come."""
        self.leave_if_asked()
        if self._gave_up or self._stop.seconds >= self._stopping_seconds:
            raise RunStopped(f"{self.id} was asked to stop, and others did not come to the end of the step")

    @property
    def _stopping_seconds(self) -> float:
        return max(_STOPPING_SECONDS, 2 * self._steps.longest)

    def interrupt(self) -> None:
        """End what this process waits for, since it is to leave; also from a signal's handler."""
        if self._transport is not None:
            self._transport.abort("asked to leave")

    def expect_steps(self) -> None:
        """From now on the time counts that steps take; without this, from the first step on."""
        self._steps.stepped()

    def next_generation(self, lost: PeerLost, *, wrong: bool = False) -> tuple[Generation, bool]:
        """After `lost`: the next generation, and whether this process is in it as before (or as new).

        `wrong`: what the other rank sent is its own fault, and the rest can go on without it.
        """
        self._stop_waiting_if_asked()
        if lost.rank is not None:
            self.member.suspect(lost.rank, str(lost), generation=self._number, broken=True, wrong=wrong)
        began = alone_since = time.monotonic()
        self._shown = ""
        while True:
            try:
                return self.member.wait_for_generation(self._number, _TICK_SECONDS), True
            except Refused as refused:
                return self._come_again(refused), False
            except PeerTimeout:
                self._stop_waiting_if_asked()
                now = time.monotonic()
                if self.member.connected:
                    alone_since = now
                elif now - alone_since > _WITHOUT_COORDINATOR_SECONDS:
                    raise LeftBehind(
                        f"{lost}; and the coordinator did not answer for {_WITHOUT_COORDINATOR_SECONDS:g} s: "
                        f"{self.member.message}"
                    ) from None
                self._show_waiting()
                if not self._shown and isinstance(lost, PeerTimeout) and now - began > self._timeout_seconds:
                    raise lost from None  # nobody knows whom to go on without

    def why(self, generation: Generation) -> str:
        """Why it was announced, as the coordinator says; empty if there is a later one already."""
        announcement = self.member.announcement
        return announcement.reason if announcement is not None and announcement.generation == generation else ""

    def _look_for_hanging(self) -> None:
        """Report workers to the coordinator whose processes live, and whose answers don't come."""
        while not self._over.wait(_TICK_SECONDS):
            transport, number = self._transport, self._number
            if transport is None or transport.aborted:
                continue
            limit = self._stopping_seconds
            works = self._info.role == "worker"  # servers wait for workers all the time
            if works and self._stop.seconds >= limit and transport.awaited(limit):
                self._gave_up = True
                transport.abort("asked to stop, and the step does not come to its end")
                continue
            formed = self._formed
            patience = self._steps.patience if formed else self._connecting_seconds
            for rank in transport.awaited(patience):
                if rank < self._workers:  # a server waits for workers itself
                    why = f"no answer for {patience:.0f} s" + (", ten times as long as a step" if formed else "")
                    self.member.suspect(rank, why, generation=number)
                    self.accused = self.accused or number == self._number

    def _show_waiting(self) -> None:
        """What this process waits for, if it is something new."""
        message = self.member.message
        if message != self._shown:
            _log.warning("%s waits: %s", self.id, message)
            self._on_waiting(message)
        self._shown = message

    def _come_again(self, refused: Refused) -> Generation:
        """The others have gone on without this process: it comes as a new one."""
        _log.warning("%s was left behind (%s) and joins again", self.id, refused)
        self.member.close()
        self._info = replace(self._info, incarnation=new_incarnation())
        self.member = self._come()
        try:
            return self.first_generation(_WITHOUT_COORDINATOR_SECONDS, again=True)
        except (Refused, PeerTimeout) as error:
            raise LeftBehind(f"{self.id} was left behind ({refused}) and can't come back: {error}") from None

    def stepped(self, *, step: int, epoch: int, offset: int, last: bool) -> None:
        """After each step: say how far it has come, or go. `last`: training is done."""
        self._steps.stepped()
        if last:
            self._steps.pause()  # now the model is tested and saved, which takes as long as it takes
        self.member.report(step, epoch, offset)
        self.leave_if_asked()
        if self._transport is not None and self._transport.aborted and not last:
            raise PeerLost(self._transport.aborted)  # others need not wait until there is something to exchange
