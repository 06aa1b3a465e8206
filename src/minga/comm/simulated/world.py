"""Ranks in virtual time: hosts whose cores work, and the messages between them.

    world = SimulatedWorld(wires, host_of=[0, 1, 2, 3])
    results = world.run(lambda rank: train(SimulatedTransport(world, rank)))

Every rank's code runs as it would anywhere else, on a `SimulatedTransport`. Time passes where the model says so: for
messages, for what is computed by `work`, and for nothing else.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from minga.comm.simulated.engine import Engine, VirtualPending
from minga.comm.simulated.flows import Flow, Flows, Transfer
from minga.comm.simulated.long_ring import LongRings
from minga.comm.simulated.wires import ScheduledChange, Wires
from minga.comm.tcp.frames import HEADER
from minga.errors import Deadlock, PeerLost

__all__ = ["Host", "Message", "Rank", "SimulatedWorld"]

Result = TypeVar("Result")


@dataclass(eq=False, slots=True)
class Host:
    """A machine: how fast it computes, and what its core did besides training."""

    number: int
    cores: float = 1.0
    speed: float = 1.0
    charged: float = 0.0
    """Seconds of work beside the training: messages, background jobs."""
    worked: float = 0.0
    """Seconds of all work, for energy."""


@dataclass(eq=False, slots=True)
class Rank:
    """One rank's place in the world."""

    number: int
    host: Host
    randomness: Tensor | None = None
    """The state of its random numbers, while other ranks run."""


class SimulatedWorld:
    """The ranks, their hosts and what is on its way between them."""

    def __init__(self, wires: Wires, host_of: Sequence[int], *, own_random_numbers: bool = True) -> None:
        """`host_of`: the host of each rank; `own_random_numbers`: whether each rank has torch's for itself."""
        self.engine = Engine(when_owner_changes=_change_random_numbers if own_random_numbers else None)
        self.wires = wires
        self.flows = Flows(self.engine, wires)
        self.hosts = [Host(number) for number in range(wires.hosts)]
        self.ranks = [Rank(number, self.hosts[host]) for number, host in enumerate(host_of)]
        # As in the laboratory: where there are sites, ranks of one site are neighbours, as if they shared a host.
        self.host_names = [f"site{wires.sites[host] + 1}" if wires.sites else f"h{host + 1}" for host in host_of]
        self.rings = LongRings(self)
        self.lost: dict[int, str] = {}
        self._flows: dict[tuple[int, int, int], Flow] = {}
        self._arrived: dict[tuple[int, int, int], deque[Message]] = defaultdict(deque)
        """By receiver, channel and tag: what is there and nobody asks for yet, or waits until the receiver is ready."""
        self._receives: dict[tuple[int, int, int], deque[Message]] = defaultdict(deque)
        self._promised: dict[tuple[int, int, int, int], deque[Message]] = defaultdict(deque)
        """Receives that were announced to their sender, the last of these numbers, as ready."""
        self._announcing: dict[tuple[int, int, int, int], deque[Message]] = defaultdict(deque)
        """By the same numbers: long messages whose announcement is on its way."""
        for change in wires.changes:
            self.engine.at(change.time, self._change, change)

    @property
    def size(self) -> int:
        return len(self.ranks)

    def now(self) -> float:
        """On the clock of the task that asks."""
        task = self.engine.current
        return task.clock if task is not None else self.engine.now

    def run(self, program: Callable[[int], Result]) -> list[Result]:
        """`program(rank)` on every rank; the results of those that were not lost, or the error that came first."""
        results: dict[int, Result] = {}
        errors: list[Exception] = []

        def body(rank: int) -> None:
            try:
                results[rank] = program(rank)
            except Exception as error:
                errors.append(error)
                why = f"{type(error).__name__}: {error}"
                self.engine.at(self.now(), self._lose, {rank}, why)

        with torch.random.fork_rng(devices=[]):
            for rank in self.ranks:
                self.engine.spawn(partial(body, rank.number), name=f"rank {rank.number}", owner=rank)
            try:
                self.engine.run()
            except Deadlock:
                if not errors:
                    raise
        if errors:
            # A lost peer is a consequence; the rank that failed by itself is the cause.
            raise next((error for error in errors if not isinstance(error, PeerLost)), errors[0])
        return [results[rank] for rank in sorted(results)]

    # --- work -------------------------------------------------------------------------------------------------------

    def work(self, seconds: float) -> None:
        """The task that runs now computes for so long, on a host of full speed that does nothing else."""
        task = self.engine.task
        host: Host = task.owner.host
        seconds /= host.speed
        host.worked += seconds
        if task.beside:
            task.clock += seconds
            host.charged += seconds
            return
        shares_core = host.cores < 2
        end = task.clock + seconds
        while True:
            charged = host.charged
            task.reach(end)
            stolen = host.charged - charged
            if not shares_core or stolen <= 0:
                return
            end += stolen

    def charge(self, host: Host, seconds: float) -> None:
        """The kernel and the carrier need the core for so long."""
        host.charged += seconds
        host.worked += seconds

    # --- messages ---------------------------------------------------------------------------------------------------

    def post_send(self, message: Message) -> None:
        if message.peer in self.lost:
            self._fail(message)
        elif message.eager:
            self._dispatch(message)
        elif promised := self._promised[message.stream]:
            receive = promised.popleft()
            self._meet(message, receive, receive.posted)
        else:
            # It is announced, behind what was sent before.
            self._announcing[message.stream].append(message)
            announced = partial(self._announced, message)
            self.flows.send(Transfer(HEADER.size, self._flow_of(message), _nothing, announced))

    def post_receive(self, message: Message) -> None:
        sent = self._match(self._arrived[message.place], lambda other: message.peer in (None, other.owner))
        if sent is None:
            if message.peer in self.lost or (message.peer is None and self.lost):
                self._fail(message)
            else:
                self._await(message)
        elif sent.payload is None:
            self._meet(sent, message, self.engine.now)
        else:
            self._deliver(sent, message)

    def _await(self, message: Message) -> None:
        """As over TCP: who sends a long message is notified at once, unless something else may come from it before."""
        waiting = self._receives[message.place]
        if message.eager or message.peer is None or any(other.peer in (None, message.peer) for other in waiting):
            waiting.append(message)
        elif announcing := self._announcing[message.stream]:
            # The notification meets the announcement of what was sent first.
            self._meet(announcing.popleft(), message, self.engine.now)
        else:
            message.posted = self.engine.now
            self._promised[message.stream].append(message)

    def _announced(self, message: Message) -> None:
        """The receiver knows that there is a long message."""
        if message.partner is not None:
            return
        self._announcing[message.stream].remove(message)
        if message.peer in self.lost:
            self._fail(message)
            return
        receive = self._match(self._receives[message.place], lambda other: other.peer in (None, message.owner))
        if receive is None:
            self._arrived[message.place].append(message)
        else:
            self._meet(message, receive, self.engine.now)

    def withdraw(self, message: Message) -> None:
        for waiting in (self._receives[message.place], self._promised[message.stream]):
            if message in waiting:
                waiting.remove(message)

    def _match(self, waiting: deque[Message], fits: Callable[[Message], bool]) -> Message | None:
        for index, other in enumerate(waiting):
            if fits(other):
                del waiting[index]
                return other
        return None

    def _meet(self, message: Message, receive: Message, ready: float) -> None:
        """The receiver was ready at that time; the sender knows of it after the way back."""
        message.partner = receive
        flow = self._flow_of(message)
        known = ready + flow.round_trip - flow.delay
        if known > self.engine.now:
            self.engine.at(known, self._dispatch, message)
        else:
            self._dispatch(message)

    def _flow_of(self, message: Message) -> Flow:
        key = (message.channel, message.owner, message.peer)
        found = self._flows.get(key)
        if found is None:
            source, target = self.ranks[message.owner].host.number, self.ranks[message.peer].host.number
            found = self._flows[key] = self.flows.connect(source, target)
        return found

    def _dispatch(self, message: Message) -> None:
        arrived = partial(self._arrive, message)
        self.flows.send(Transfer(message.tensor.nbytes, self._flow_of(message), message.leave, arrived))

    def _arrive(self, message: Message) -> None:
        """The last byte of a message is at its receiver's host."""
        if message.peer in self.lost:
            return
        message.posted = self.engine.now
        receive = message.partner
        if receive is None and self._promised[message.stream]:
            receive = self._promised[message.stream].popleft()
        if receive is None:
            receive = self._match(self._receives[message.place], lambda other: other.peer in (None, message.owner))
        if receive is None:
            self._arrived[message.place].append(message)
        else:
            self._deliver(message, receive)

    def _deliver(self, sent: Message, receive: Message) -> None:
        payload, space = sent.payload, receive.tensor
        assert payload is not None
        if payload.shape != space.shape or payload.dtype != space.dtype:
            receive.fail(
                f"rank {sent.owner} sent {tuple(payload.shape)} {payload.dtype}, but "
                f"rank {receive.owner} expected {tuple(space.shape)} {space.dtype}"
            )
            return
        if not space.is_meta:
            space.copy_(payload)
        receive.source = sent.owner
        sent.payload = None
        carrier = self.wires.carrier
        cost = carrier.receive_seconds + carrier.receive_seconds_per_byte * space.nbytes
        self.charge(self.ranks[receive.owner].host, cost)
        # What came before anybody asked for it was taken in then.
        ready = sent.posted + carrier.receive_seconds + carrier.wake_seconds
        if ready > self.engine.now:
            self.engine.at(ready, receive.complete)
        else:
            receive.complete()

    # --- changes on the way -----------------------------------------------------------------------------------------

    def _change(self, change: ScheduledChange) -> None:
        for host in range(self.wires.hosts) if change.host is None else [change.host]:
            self.flows.change(host, up=change.up, down=change.down, delay=change.delay)
            if change.speed is not None:
                self.hosts[host].speed = change.speed
            if change.lost:
                ranks = {rank.number for rank in self.ranks if rank.host.number == host}
                self._lose(ranks, f"its host was lost at {self.engine.now:g} s")

    def _lose(self, ranks: set[int], why: str) -> None:
        """These ranks are gone; who waits for them fails."""
        self.lost |= dict.fromkeys(ranks, why)
        self.engine.kill(lambda owner: owner.number in ranks)
        places = (*self._receives.values(), *self._promised.values(), *self._arrived.values())
        waiting = [message for some in places for message in some]
        for message in waiting:
            if message.owner not in ranks and (message.peer is None or message.peer in ranks):
                self._fail(message)

    def _fail(self, message: Message) -> None:
        gone = sorted(self.lost) if message.peer is None else [message.peer]
        message.fail("; ".join(f"rank {rank} is gone ({self.lost[rank]})" for rank in gone))


class Message(VirtualPending):
    """One side of a message."""

    def __init__(
        self,
        world: SimulatedWorld,
        tensor: Tensor,
        owner: int,
        peer: int | None,
        channel: int,
        tag: int,
        *,
        sends: bool,
    ) -> None:
        super().__init__(world.engine)
        self.tensor = tensor
        self.owner = owner
        self.peer: Any = peer
        self.channel = channel
        self.tag = tag
        self.place: tuple[Any, int, int] = (self.peer if sends else owner, channel, tag)
        """Where it is received."""
        self.stream: tuple[Any, int, int, Any] = (*self.place, owner if sends else self.peer)
        """And from whom."""
        self.sends = sends
        self.payload: Tensor | None = None
        """What was sent, from when it left: the sender may change its own tensor then."""
        self.partner: Message | None = None
        self.eager = tensor.nbytes <= world.wires.carrier.rendezvous_bytes
        """Whether it is sent before the receiver is ready."""
        self.posted = 0.0
        """When the sender was notified that it is waited for; of what is sent: when it had arrived."""
        self.source: int | None = None
        self._world = world
        self._error: str | None = None

    def wait(self, patience: float = 1.0) -> int:
        self.wait_in_words(self._in_words)
        if self._error is not None:
            raise PeerLost(f"rank {self.owner} can't {self._verb}: {self._error}", rank=self.peer)
        return self.owner if self.source is None else self.source

    def cancel(self) -> None:
        self._world.withdraw(self)

    def leave(self) -> None:
        """The last byte is on its way: the sender may go on."""
        self.payload = self.tensor if self.tensor.is_meta else self.tensor.clone()
        self.complete()

    def fail(self, why: str) -> None:
        if not self._completed:
            self._error = why
            self.complete()

    @property
    def _verb(self) -> str:
        return "send to" if self.sends else "receive from"

    def _in_words(self) -> str:
        whom = "any rank" if self.peer is None else f"rank {self.peer}"
        return f"to {self._verb} {whom} ({self.tensor.nbytes:,} bytes{f', tag {self.tag}' if self.tag else ''})"


def _nothing() -> None:
    pass


def _change_random_numbers(before: Rank | None, after: Rank | None) -> None:
    """Each rank draws from torch's random numbers as if it were alone in its process."""
    if before is not None:
        before.randomness = torch.get_rng_state()
    if after is not None:
        if after.randomness is None:
            after.randomness = torch.get_rng_state()
        torch.set_rng_state(after.randomness)
