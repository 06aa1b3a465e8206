"""A rank's connection to the coordinator, in a thread of its own.

    where = CoordinatorAddress(address="127.0.0.1", port=4000, token=token)
    member = Member(where, info, facts={"version": minga.__version__})
    member.on_change(lambda change: transport.abort(change.reason))
    generation = member.join(timeout_seconds=60)
    transport = TcpTransport(generation, generation.rank_of(info.id), listener)
    member.formed(generation.number)
    while training: ...; member.report(step, epoch, offset)
    member.leave(finished=True)

The thread sleeps between heartbeats: training next to it loses nothing. When the coordinator is gone, training goes on,
and the thread connects again until one answers. A member that the coordinator may have given up (`lost_contact`) must
not write what all share, such as checkpoints.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from minga.errors import PeerTimeout, ProtocolError, Refused, RunStopped
from minga.membership.messages import (
    Alive,
    Announcement,
    Ended,
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
from minga.membership.protocol import ControlConnection, CoordinatorAddress
from minga.net.generation import Generation, MemberInfo, Position
from minga.net.greeting import check_token
from minga.net.loop_thread import LoopThread
from minga.net.strict import parse

__all__ = ["Change", "Member"]

_WELCOME_SECONDS = 10.0  # the coordinator connects back before it answers
_FIRST_DELAY_SECONDS = 0.05
_LONGEST_DELAY_SECONDS = 1.0
_LAST_MESSAGE_SECONDS = 2.0
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
        check_token(where.token)
        self.info = info
        self._where = where
        self._facts = {name: str(value) for name, value in (facts or {}).items()}
        self._clock = clock
        self._changed = threading.Condition()
        self._callbacks: list[Callable[[Change], None]] = []
        self.announcement: Announcement | None = None
        """The latest: the generation, where in the data it begins, who has the state, and why it was announced."""
        self._formed = 0
        self._position = Position()
        self._suspicions: dict[str, Suspect] = {}
        self._waiting_for = ""
        self._end: Ended | Refusal | None = None
        """Why there is nobody to talk to any more."""

        self._thread: LoopThread | None = None
        self._closed = False
        self._connection: ControlConnection | None = None
        self.connected = False
        """Whether the coordinator has said welcome on a connection that still stands."""
        self._known = False
        self._trouble = ""
        """Why there is no connection, in words; empty if there is one."""
        self._delay = _FIRST_DELAY_SECONDS
        self._last_message: Leave | None = None
        self._sent_last_message = False
        self._gone = threading.Event()

        self._lease: float | None = None
        self._lease_from_hello = 0.0
        self._beats: dict[int, float] = {}
        self._beat = 0
        self._heartbeat_seconds = 1.0
        self._timeout_seconds = 5.0

    # What is known

    @property
    def generation(self) -> Generation | None:
        """The latest that was announced, formed or not."""
        announcement = self.announcement
        return announcement.generation if announcement is not None else None

    @property
    def lost_contact(self) -> bool:
        """Whether the coordinator may have gone on without this member.

        There is no connection to it, or it has not answered for the heartbeat timeout. Time counts from when the last
        answered heartbeat was *sent*, so this is true before the coordinator gives a silent member up.
        """
        lease = self._lease
        if lease is None:  # nothing to lose yet
            return False
        return not self.connected or self._clock() - lease >= self._timeout_seconds

    @property
    def message(self) -> str:
        """The last thing that the coordinator, or the way to it, had to report; for people."""
        return self._waiting_for or self._trouble

    def on_change(self, callback: Callable[[Change], None]) -> None:
        """Call `callback` in the member's thread whenever the generation that was is over."""
        with self._changed:
            self._callbacks.append(callback)

    def join(self, timeout_seconds: float) -> Generation:
        """Take part; the first generation with this member. `Refused` with the reason, or `PeerTimeout`.

        Where the run was ended meanwhile for everybody, `RunStopped`.
        """
        self._start()
        return self.wait_for_generation(0, timeout_seconds)

    def wait_for_generation(self, after: int, timeout_seconds: float) -> Generation:
        """A generation with a number above `after`, now or when it is announced."""
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while True:
                generation = self.generation
                if self._end is not None:
                    raise (RunStopped if isinstance(self._end, Ended) else Refused)(self._end.reason)
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
        self._tell(Formed(generation=number))

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
        self._tell(suspect)

    def leave(self, *, finished: bool = False) -> None:
        """Go. `finished`: the run is done here, others need not re-form; otherwise they do."""
        if self._thread is not None and self._known:
            self._thread.do(self._send_last, Leave(finished=finished))
            self._gone.wait(_LAST_MESSAGE_SECONDS)  # to receive it, or to come back; then it ends the connection
        self.close()

    def close(self) -> None:
        """End the thread and the connection; without `leave` before, the coordinator takes it for a failure."""
        with self._changed:
            self._closed = True
        if self._thread is not None:
            self._thread.close()

    def _start(self) -> None:
        """Once; a member that was closed stays so."""
        with self._changed:
            if self._thread is None and not self._closed:
                self._thread = LoopThread("member")
                self._thread.begin(self._connect_again_and_again)

    def _tell(self, message: FromMember) -> None:
        """Send if there is a connection; what matters later is sent again after the next welcome."""
        if self._thread is not None:
            self._thread.do(self._send, message)

    # In the member's thread

    def _send(self, message: FromMember) -> None:
        if self._connection is not None and self.connected:
            self._connection.send(message)
            self._sent_last_message = message is self._last_message

    def _send_last(self, message: Leave) -> None:
        self._last_message = message
        self._send(message)

    async def _connect_again_and_again(self) -> None:
        try:
            while True:
                try:
                    await self._talk()
                except Refused as refusal:
                    # A member does not believe a stranger at the coordinator's address, a newcomer should hear at once.
                    if self._known:
                        self._set_trouble(str(refusal))
                    else:
                        self._receive(Refusal(reason=str(refusal)))
                except (ProtocolError, PeerTimeout, OSError) as error:
                    self._set_trouble(self._where.explain(error))
                if self._end is not None or self._sent_last_message:
                    return
                # Not all at the same moment when the coordinator comes back.
                await asyncio.sleep(self._delay * random.uniform(0.5, 1))
                self._delay = min(2 * self._delay, _LONGEST_DELAY_SECONDS)
        finally:
            self._gone.set()

    def _set_trouble(self, trouble: str) -> None:
        if trouble != self._trouble and not self._sent_last_message:
            _log.warning("%s; trying again", trouble)
        self._trouble = trouble

    async def _talk(self) -> None:
        """One connection, until the coordinator says that this is the end; any other end is an error."""
        async with self._where.connected() as connection:
            beating: asyncio.Task[None] | None = None
            self._connection = connection
            try:
                async with asyncio.timeout(_WELCOME_SECONDS):
                    connection.send(self._hello())
                    self._receive(await connection.receive())
                beating = asyncio.create_task(self._send_heartbeats(connection))
                while self._end is None:
                    self._receive(await connection.receive())
            finally:
                self.connected, self._connection = False, None
                if beating is not None:
                    beating.cancel()
                    # Not `await beating`: its cancellation would look like that of this task.
                    await asyncio.gather(beating, return_exceptions=True)

    async def _send_heartbeats(self, connection: ControlConnection) -> None:
        while (heartbeat := self._heartbeat()) is not None:
            connection.send(heartbeat)
            await asyncio.sleep(self._heartbeat_seconds)
        connection.abort()  # the other side does not answer: perhaps a new connection finds a way

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

    def _receive(self, message: FromCoordinator | FromMember) -> None:
        if isinstance(message, FromMember):
            raise ProtocolError(f"a coordinator does not send {type(message).__name__.lower()!r}")
        if not self.connected and not isinstance(message, Welcome | Refusal):
            raise ProtocolError("a coordinator sends welcome first")
        change: Change | None = None
        with self._changed:
            match message:
                case Welcome():
                    self.connected = self._known = True
                    self._trouble, self._delay = "", _FIRST_DELAY_SECONDS
                    self._heartbeat_seconds = max(message.heartbeat_seconds, 0.01)
                    self._timeout_seconds = message.heartbeat_timeout_seconds
                    self._lease = self._lease_from_hello
                    self._beats.clear()
                    for suspect in self._suspicions.values():
                        self._send(suspect)
                    if self._last_message is not None:
                        self._send(self._last_message)
                case Alive():
                    self._lease = self._beats.pop(message.number, self._lease)
                    self._beats = {number: sent for number, sent in self._beats.items() if number > message.number}
                case Announcement() if self.generation is None or message.generation.number > self.generation.number:
                    self.announcement, self._waiting_for = message, ""
                    self._suspicions.clear()
                    change = Change(message.reason, message)
                case Interrupted() if self.generation is not None:
                    change = Change(message.reason, None)
                case Waiting():
                    if message.message != self._waiting_for:
                        _log.info("%s: %s", self.info.id, message.message)
                    self._waiting_for = message.message
                case Ended() | Refusal():
                    self.connected, self._end = False, message
                    change = Change(message.reason, None)
            callbacks = list(self._callbacks) if change is not None else []
            self._changed.notify_all()
        for callback in callbacks:
            try:
                assert change is not None
                callback(change)
            except Exception:  # the thread must go on: others wait for its heartbeats
                _log.exception("a callback for changes of the generation failed")
