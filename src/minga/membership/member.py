"""A rank's connection to the coordinator, in a thread of its own.

    where = CoordinatorAddress(address="127.0.0.1", port=4000, token=token)
    member = Member(where, info, facts={"version": minga.__version__})
    member.on_change(lambda change: transport.abort(change.reason))
    generation = member.join(timeout_seconds=60)
    transport = TcpTransport(generation, generation.rank_of(info.id), listener)
    member.formed(generation.number)
    while training: ...; member.report(step, epoch, offset)
    member.leave(finished=True)

When the coordinator is gone, training goes on: the thread connects again until one answers. A member that the
coordinator may have given up (`lost_contact`) must not write what all share, such as checkpoints.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from minga.errors import PeerTimeout, Refused, RunStopped
from minga.membership.contact import Contact
from minga.membership.messages import (
    Alive,
    Announcement,
    Ended,
    Formed,
    FromCoordinator,
    Heartbeat,
    Hello,
    Interrupted,
    Leave,
    Refusal,
    Suspect,
    Waiting,
    Welcome,
)
from minga.membership.protocol import CoordinatorAddress
from minga.net.generation import Generation, MemberInfo, Position
from minga.net.greeting import check_token
from minga.net.strict import parse

__all__ = ["Change", "Member"]

_log = logging.getLogger("minga.membership.member")


@dataclass(frozen=True)
class Change:
    """The generation that was is over."""

    reason: str
    announcement: Announcement | None
    """The next one; None if there is none yet, or none with this member."""


class Member:
    """This process in the run. All methods may be called from any thread."""

    def __init__(
        self,
        where: CoordinatorAddress,
        info: MemberInfo,
        facts: Mapping[str, str] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`facts`: what it has in common with all others."""
        parse(MemberInfo, asdict(info), "member")  # the coordinator would refuse it too, but later
        self.info = info
        self._facts = {name: str(value) for name, value in (facts or {}).items()}
        self._clock = clock
        self._changed = threading.Condition()
        self._callbacks: list[Callable[[Change], None]] = []
        self._announcement: Announcement | None = None
        self._formed = 0
        self._position = Position()
        self._suspicions: dict[str, Suspect] = {}
        self._message = ""
        self._refusal = ""
        self._over = ""
        self._lease: float | None = None
        self._lease_from_hello = 0.0
        self._beats: dict[int, float] = {}
        self._beat = 0
        self._timeout_seconds = 5.0
        check_token(where.token)
        self._contact = Contact(where, hello=self._hello, hear=self._receive, beat=self._heartbeat)

    # What is known

    @property
    def generation(self) -> Generation | None:
        """The latest that was announced, formed or not."""
        announcement = self._announcement
        return announcement.generation if announcement is not None else None

    @property
    def announcement(self) -> Announcement | None:
        """The same with where in the data it begins, who has the state, and why it was announced."""
        return self._announcement

    @property
    def connected(self) -> bool:
        """Whether there is a connection to the coordinator now."""
        return self._contact.welcomed

    @property
    def lost_contact(self) -> bool:
        """Whether the coordinator may have gone on without this member.

        There is no connection to it, or it has not answered for the heartbeat timeout. Time counts from when the last
        answered heartbeat was *sent*, so this is true before the coordinator gives a silent member up.
        """
        lease = self._lease
        if lease is None:  # nothing to lose yet
            return False
        return not self._contact.welcomed or self._clock() - lease >= self._timeout_seconds

    @property
    def message(self) -> str:
        """The last thing that the coordinator, or the way to it, had to report; for people."""
        return self._message or self._contact.trouble

    def on_change(self, callback: Callable[[Change], None]) -> None:
        """Call `callback` in the member's thread whenever the generation that was is over."""
        with self._changed:
            self._callbacks.append(callback)

    def join(self, timeout_seconds: float) -> Generation:
        """Take part; the first generation with this member. `Refused` with the reason, or `PeerTimeout`.

        Where the run was ended meanwhile for everybody, `RunStopped`.
        """
        self._contact.start()
        return self.wait_for_generation(0, timeout_seconds)

    def wait_for_generation(self, after: int, timeout_seconds: float) -> Generation:
        """A generation with a number above `after`, now or when it is announced."""
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while True:
                generation = self.generation
                if self._over:
                    raise RunStopped(self._over)
                if self._refusal:
                    raise Refused(self._refusal)
                if generation is not None and generation.number > after:
                    return generation
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
        why = self.message or "the coordinator has said nothing"
        raise PeerTimeout(f"no generation after {after} was announced within {timeout_seconds:g} s: {why}")

    # What it reports

    def formed(self, number: int) -> None:
        """All connections of this generation are there."""
        self._formed = number
        self._contact.send(Formed(generation=number))

    def report(self, step: int, epoch: int, offset: int) -> None:
        """Where in the data this member is. Costs nothing: the next heartbeat has it."""
        self._position = Position(step=step, epoch=epoch, offset=offset)

    def suspect(
        self, rank: int, why: str, *, generation: int | None = None, broken: bool = False, wrong: bool = False
    ) -> None:
        """A rank did not answer; `broken`: its connection broke, so that all re-form, with it or without.

        `wrong`: what it sent was malformed; if most of the others say so, it is out.
        `generation`: the number of the one that `rank` is of (default: the latest); of an old one it is ignored.
        """
        with self._changed:
            latest = self.generation
            if latest is None or generation not in (None, latest.number):
                return
            why = "".join(character for character in why if character.isprintable())[:200]
            id = latest.members[rank].id
            suspect = Suspect(generation=latest.number, id=id, why=why, broken=broken, wrong=wrong)
            self._suspicions[suspect.id] = suspect
        self._contact.send(suspect)

    def leave(self, *, finished: bool = False) -> None:
        """Go. `finished`: the run is done here, others need not re-form; otherwise they do."""
        self._contact.stop(last_message=Leave(finished=finished))

    def close(self) -> None:
        """End the thread and the connection; without `leave` before, the coordinator takes it for a failure."""
        self._contact.stop()

    # In the member's thread

    def _hello(self) -> Hello:
        self._lease_from_hello = self._clock()
        number = self.generation.number if self.generation is not None else 0
        return Hello(info=self.info, facts=self._facts, generation=number, formed=self._formed, position=self._position)

    def _heartbeat(self) -> Heartbeat | None:
        """The next one; None when it is time to give the connection up."""
        if self.lost_contact:
            return None
        self._beat += 1
        self._beats[self._beat] = self._clock()
        return Heartbeat(number=self._beat, position=self._position)

    def _receive(self, message: FromCoordinator) -> None:
        change: Change | None = None
        with self._changed:
            match message:
                case Welcome():
                    self._timeout_seconds = message.heartbeat_timeout_seconds
                    self._lease = self._lease_from_hello
                    self._beats.clear()
                    for suspect in self._suspicions.values():
                        self._contact.send(suspect)
                case Alive():
                    self._lease = self._beats.pop(message.number, self._lease)
                    self._beats = {number: sent for number, sent in self._beats.items() if number > message.number}
                case Announcement() if self.generation is None or message.generation.number > self.generation.number:
                    self._announcement, self._message = message, ""
                    self._suspicions.clear()
                    change = Change(message.reason, message)
                case Interrupted() if self.generation is not None:
                    change = Change(message.reason, None)
                case Waiting():
                    if message.message != self._message:
                        _log.info("%s: %s", self.info.id, message.message)
                    self._message = message.message
                case Ended():
                    self._over = message.reason
                    change = Change(message.reason, None)
                case Refusal():
                    self._refusal = message.reason
                    change = Change(message.reason, None)
            callbacks = list(self._callbacks) if change is not None else []
            self._changed.notify_all()
        for callback in callbacks:
            try:
                assert change is not None
                callback(change)
            except Exception:  # the thread must go on: others wait for its heartbeats
                _log.exception("a callback for changes of the generation failed")
