"""The coordinator: serves the roster over TCP, outside of all ranks.

order = CoordinatorOrder(state="runs/r/coordinator.json", run="r", token=token, rules=Rules(expect=4, min_nodes=2))
Job(name="coordinator", function="minga.membership.coordinator:main", helper=True, order=order, log=...)
address, port = wait_for_address(Path("runs/r/coordinator.json"), timeout_seconds=10)

It may die at any moment. Started again with the same state file it goes on with the same token, address, port and
generation, and the members, which have trained on meanwhile, come back to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minga.base.config import Config, build
from minga.errors import ConfigError, ProtocolError, Refused
from minga.membership.messages import (
    Announcement,
    Description,
    Ended,
    FromCoordinator,
    FromMember,
    Handover,
    Hello,
    Inquiry,
    Received,
    Refusal,
    Waiting,
)
from minga.membership.protocol import CLAIM, ControlConnection
from minga.membership.roster import Close, Roster
from minga.membership.rules import RosterState, Rules, listed
from minga.membership.state_file import CoordinatorState, load, own, save
from minga.membership.visitors import Accounts, Numbers
from minga.net.greeting import Opening, check_token
from minga.net.interfaces import unreachable
from minga.net.listener import Key, Listener
from minga.net.sockets import Socket, listen
from minga.net.tls import load_tls

__all__ = ["ABANDONED", "Coordinator", "CoordinatorOrder", "coordinating", "main"]

ABANDONED = 75
"""The exit code of a coordinator that everybody has left before the run's end."""
_TICK_SECONDS = 0.1
_PORT_SECONDS = 5.0
_HANG_UP_SECONDS = 1.0
_LAST_MESSAGE_SECONDS = 1.0
# How long nodes elsewhere that have finished get to hand over what they have written down.
_HANDOVER_SECONDS = 15.0
_log = logging.getLogger("minga.membership.coordinator")


@dataclass(frozen=True, kw_only=True)
class CoordinatorOrder(Config):
    """To who is a run's coordinator: a process of its own, or a thread of a program."""

    kind = "coordinator's order"

    state: Path
    """The file that it goes on from when it is started again."""
    run: str
    token: str | None = field(default=None, repr=False)
    """None: the one in the state file."""
    rules: Rules = field(default_factory=Rules)
    facts: dict[str, str] | None = None
    """What all members must have in common; None: what the first one has."""
    address: str = "127.0.0.1"
    port: int = 0
    """0: one that is free."""
    tls: str | None = None
    """The directory of this node's certificate."""
    greeting_seconds: float = 5.0
    """Who has not shown within that time that it knows the token is dropped."""
    description: str | None = None
    """The experiment for those who ask (TOML); None: nobody else is wanted."""
    own: tuple[int, ...] = (0,)
    """Numbers of nodes that are not for others."""
    events: Path | None = None
    """The folder for what nodes elsewhere hand over at their end."""
    abandoned_seconds: float = float("inf")
    """How long to wait when everybody is gone."""


class Coordinator:
    """The roster, the connections of those who are in it, and the file that survives both."""

    def __init__(self, order: CoordinatorOrder) -> None:
        self._order = order
        self._tls = load_tls(order.tls) if order.tls is not None else None
        self._numbers, self._node_numbers = itertools.count(1), Numbers()
        self._accounts = Accounts(order.events, own=order.own) if order.events is not None else None
        self.abandoned = False
        """Whether it has ended because everybody was gone."""
        self._connections: dict[int, ControlConnection] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end = asyncio.Event()
        self._saved = -1
        self._logged = 0
        self._roster: Roster
        self._state: CoordinatorState
        self._listener: Listener
        self.address, self.port = order.address, order.port
        self.listening = threading.Event()
        """Set when `address` and `port` are where it listens."""

    async def serve(self) -> None:
        """Until the run is over or `stop` is called."""
        with own(self._order.state), self._listen() as listening:
            self._loop = asyncio.get_running_loop()
            self._roster = Roster(self._order.rules, now=time.monotonic(), state=self._state.roster)
            self._listener = Listener(
                listening,
                context=self._tls.server if self._tls is not None else None,
                seconds=self._order.greeting_seconds,
                look_up=self._look_up,
                welcome=self._welcome,
            )
            self._save()
            _log.info("listening on %s:%s, generation %s", self.address, self.port, self._roster.state.number)
            self.listening.set()
            tasks = [asyncio.create_task(self._listener.serve()), asyncio.create_task(self._tick())]
            waits = [*tasks, asyncio.create_task(self._end.wait())]
            try:
                done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()  # a programming error ends the process, which is then started again
                await self._announce_the_end()
            finally:
                for task in waits:
                    task.cancel()
                await asyncio.gather(*waits, return_exceptions=True)
                await asyncio.gather(*self._closing, return_exceptions=True)

    def stop(self) -> None:
        """From any thread."""
        if self._loop is None:
            self._end.set()
        else:
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._end.set)

    def _listen(self) -> socket.socket:
        """Read the state, or make one; listen where the last coordinator did, so that members find this one."""
        order, found = self._order, load(self._order.state)
        if found is not None and (found.run != order.run or order.token not in (None, found.token)):
            raise ConfigError(f"{order.state} is of the run {found.run} or has another token; give another file")
        if found is None and order.token is None:
            raise ConfigError("a new coordinator needs a token (minga.net.greeting.new_token makes one)")
        state = found or CoordinatorState(
            run=order.run, token=order.token or "", address=order.address, port=order.port, roster=RosterState()
        )
        check_token(state.token)
        if order.facts is not None:
            state.roster.facts = order.facts
        listening = listen(state.address, state.port, patience_seconds=_PORT_SECONDS if found else 0)
        self.address, self.port = state.address, listening.getsockname()[1]
        state.port = self.port
        self._state = state
        return listening

    async def _announce_the_end(self) -> None:
        """Members on other machines would otherwise wait for a coordinator that nobody starts again."""
        if self._order.description is None:
            return
        for connection in self._connections.values():
            connection.send(Ended(reason="the run was ended where it was started"))
        # Who has received it hangs up. Were it this side that does, with something unread, the message could be lost.
        deadline = time.monotonic() + _LAST_MESSAGE_SECONDS
        while self._connections and time.monotonic() < deadline:
            await asyncio.sleep(0.01)

    async def _tick(self) -> None:
        seen = time.monotonic()
        while not self._roster.done:
            await asyncio.sleep(_TICK_SECONDS)
            now = time.monotonic()
            self._roster.tick(now)
            self._act()
            if self._connections or self._roster.state.generation is None:
                seen = now
            elif now - seen >= self._order.abandoned_seconds:
                _log.error("everybody was gone for %g s, and nobody has finished", self._order.abandoned_seconds)
                self.abandoned = True
                return
        _log.info("all members have finished")
        deadline = time.monotonic() + _HANDOVER_SECONDS
        while self._accounts is not None and (missing := self._accounts.missing(self._roster.state.finished)):
            if time.monotonic() > deadline:
                _log.warning("no events came from %s; they are on their own machines", listed(missing))
                break
            await asyncio.sleep(_TICK_SECONDS)

    def _look_up(self, opening: Opening) -> Key:
        if opening.claim != CLAIM:
            raise Refused("this is a coordinator's port; look at the port")
        run = self._order.run
        return Key(self._state.token.encode(), run, f"its token is not that of the run {run}")

    async def _welcome(self, visitor: Socket, opening: Opening, first: bytes) -> None:
        """Somebody knows the token: find out who it is, then receive until one side ends the connection."""
        connection = ControlConnection(visitor, first)
        try:
            await self._converse(connection)
        finally:
            connection.abort()

    async def _converse(self, connection: ControlConnection) -> None:
        asked = False
        try:
            while isinstance(hello := await self._first_message(connection), Inquiry | Handover):
                connection.send(self._answer(hello, connection))
                asked = True
            if not isinstance(hello, Hello):
                raise ProtocolError(f"the first message should be a hello, not {type(hello).__name__.lower()}")
        except (OSError, TimeoutError, ProtocolError) as error:
            if not asked or isinstance(error, ProtocolError):
                self._listener.refuse(connection.peer, str(error) or "no hello in time")
            return
        peer, link = f"{hello.info.id} ({connection.peer})", next(self._numbers)
        may_come = not self._roster.objection(hello) and not self._roster.knows(hello.info)
        if may_come and (reason := await unreachable(hello.info, connection.peer_address)):
            self._listener.refuse(peer, reason)
            connection.send(Refusal(reason=reason))
            await connection.close()
            return
        self._connections[link] = connection
        if reason := self._roster.hello(time.monotonic(), link, hello):  # others may have come meanwhile
            self._listener.refuse(peer, reason)
        else:
            _log.info("%s is here", peer)
        self._act()
        await self._receive_all(link, peer, connection)
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _first_message(self, connection: ControlConnection) -> FromMember | FromCoordinator:
        async with asyncio.timeout(self._order.greeting_seconds):
            return await connection.receive()

    def _answer(self, question: Inquiry | Handover, visitor: ControlConnection) -> FromCoordinator:
        """To somebody who knows the token and is no member."""
        if isinstance(question, Inquiry):
            return self._describe()
        if self._accounts is None:
            return Refusal(reason=f"the run {self._order.run} has nobody elsewhere")
        try:
            self._accounts.take(question)
        except OSError as error:
            _log.error("can't keep the events of %s: %s", question.id, error)
            return Refusal(reason=f"the events can't be kept: {error.strerror or error}")
        if question.last:
            _log.info("%s (%s) has handed over its events", question.id, visitor.peer)
        return Received()

    def _describe(self) -> FromCoordinator:
        """The answer to who asks what this run is about."""
        order, roster = self._order, self._roster
        if order.description is None:
            return Refusal(reason=f"the run {order.run} takes nobody else in; start it with --listen for that")
        if roster.state.finished:
            return Refusal(reason="the run is finishing: some members are done already")
        if roster.state.facts is None:
            return Waiting(message=f"the run {order.run} is just starting")
        here = (*roster.members, *roster.waiting)
        return Description(
            run=order.run,
            number=self._node_numbers.next(time.monotonic(), order.own, here),
            lines=tuple(order.description.splitlines()),
        )

    async def _receive_all(self, link: int, peer: str, connection: ControlConnection) -> None:
        """Until the connection ends; who was refused is ignored, but its hanging up is news."""
        by_peer = True
        try:
            while True:
                message = await connection.receive()
                if link in self._connections:
                    self._roster.receive(time.monotonic(), link, message)
                    self._act()
        except ProtocolError as error:
            self._listener.refuse(peer, str(error))
            connection.send(Refusal(reason=str(error)))
            await connection.close()
        except OSError as error:
            # What only this machine's kernel says (no answer, no route) leaves open whether the member still lives.
            by_peer = isinstance(error, ConnectionError) and not connection.aborted
            if link in self._connections:
                _log.info("the connection of %s ended: %s", peer, error)
        self._connections.pop(link, None)
        self._roster.ended(time.monotonic(), link, by_peer=by_peer)
        self._act()

    def _act(self) -> None:
        """Save, then send: a generation that anybody has heard of is never announced twice with other members."""
        self._save()
        for effect in self._roster.take_effects():
            connection = self._connections.get(effect.link)
            if connection is None:
                continue
            if effect.message is not None:
                connection.send(effect.message)
            if isinstance(effect.message, Announcement) and effect.message.generation.number > self._logged:
                generation = effect.message.generation
                self._logged = generation.number
                names = listed(member.id for member in generation.members)
                _log.info("generation %s: %s (%s)", generation.number, names, effect.message.reason)
            if isinstance(effect, Close):
                if isinstance(effect.message, Refusal):
                    _log.info("out: %s", effect.message.reason)
                self._dismiss(effect.link, connection, refused=isinstance(effect.message, Refusal))

    def _dismiss(self, link: int, connection: ControlConnection, *, refused: bool) -> None:
        """Who is refused gets a moment to hang up by itself, which shows that it knows."""
        del self._connections[link]
        loop = asyncio.get_running_loop()
        if refused:
            loop.call_later(_HANG_UP_SECONDS, connection.abort)
            return
        task = loop.create_task(connection.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _save(self) -> None:
        if self._roster.version == self._saved:
            return
        try:
            save(self._order.state, self._state)
        except OSError as error:
            # Training is worth more than the ability to restart this process; the next change tries again.
            _log.error(
                "can't save the roster to %s: %s; a restart would go on from an older one", self._order.state, error
            )
        self._saved = self._roster.version


@contextlib.contextmanager
def coordinating(coordinator: Coordinator) -> Iterator[tuple[str, int]]:
    """A coordinator in a thread of this process, for programs of one's own and for tests; its address and port."""
    failure: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(coordinator.serve())
        except BaseException as error:
            failure.append(error)
        finally:
            coordinator.listening.set()

    thread = threading.Thread(target=run, name="coordinator", daemon=True)
    thread.start()
    coordinator.listening.wait()
    try:
        if failure:
            raise failure[0]
        yield coordinator.address, coordinator.port
    finally:
        coordinator.stop()
        thread.join()


def main(arguments: Mapping[str, Any]) -> int:
    """A process that is the coordinator until the run is over or it is ended; the exit code. See `CoordinatorOrder`."""
    coordinator = Coordinator(build(CoordinatorOrder, arguments))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    signal.signal(signal.SIGTERM, lambda *_: coordinator.stop())
    asyncio.run(coordinator.serve())
    return ABANDONED if coordinator.abandoned else 0


if __name__ == "__main__":
    sys.exit(main(json.load(sys.stdin)))
