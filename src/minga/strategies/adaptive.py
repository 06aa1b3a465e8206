"""The choice for people who don't want to choose: exchange as often and as faithfully as hides behind computing."""

from __future__ import annotations

import statistics
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch

from minga.codecs import Codec, Half, Int8, Plain, PowerSGD
from minga.comm import Pending, Transport, all_reduce_sum, barrier
from minga.comm.collectives import ring
from minga.config import FieldError
from minga.replica import Replica
from minga.spec import describe
from minga.strategies.base import Strategy
from minga.strategies.movement import Movement
from minga.strategies.rungs import Conditions, Rung, choose

__all__ = ["Adaptive"]

_KEY = "adaptive"
# From the most faithful to the smallest: each has about half the bytes of the one before.
_LADDER: tuple[Codec, ...] = (
    Plain(),
    Half(),
    Int8(),
    *(PowerSGD(rank=rank, factors="int8") for rank in (32, 16, 8, 4, 2, 1)),
)
# What the kernel does for a byte that is sent and one that is received, on the same core that trains.
_KERNEL_SECONDS_PER_BYTE = 2e-9
# How much of the old estimate of the link stays when a new one comes: little, so that changes are followed quickly.
_INERTIA = 0.5


@dataclass(frozen=True, kw_only=True)
class Adaptive(Strategy):
    """Averages in the background, in the most faithful form that hides behind computing; nobody ever waits.

    Every replica trains on; its movement since the last averaging is exchanged meanwhile, and when the mean is there
    it takes the movement's place (see `local_sgd` with overlap). The next exchange begins when the last has ended, so
    the period follows the network by itself, also when it changes. With each exchange the ranks tell each other how
    long a step and a byte take, and choose the form of the next one: whole numbers, 16 or 8 bits, PowerSGD of falling
    rank; the most faithful one that arrives within `budget` steps. A peer that fails is missed at the next exchange.
    """

    replicas_differ: ClassVar[bool] = True

    budget: float = 2.0
    """The accuracy budget: how many steps late news of the others may be. If no form of exchange is as quick, the
    quickest is taken: later news, but nobody waits."""

    overhead: float = 0.04
    """The part of computing time that encoding and decoding may take; exchanges are spaced out accordingly."""

    def check(self) -> None:
        if not 0.5 <= self.budget <= 1000:
            raise FieldError(("budget",), f"should be between 0.5 and 1000 steps, not {self.budget:g}")
        if not 0.001 <= self.overhead <= 1:
            raise FieldError(("overhead",), f"should be between 0.001 and 1, not {self.overhead:g}")
        if self.codec.corrects_momentum:
            raise FieldError(
                ("codec",), "corrects momentum of gradients, which are not exchanged here; use it with allreduce or ps"
            )

    def start(self, replica: Replica, comm: Transport) -> None:
        barrier(comm)
        began = comm.now()
        super().start(replica, comm)
        barrier(comm)
        seconds_per_byte = (comm.now() - began) / replica.parameters.nbytes
        codecs = _LADDER if isinstance(self.codec, Plain) else (self.codec,)
        rungs = [self._rung(codec, replica, comm) for codec in codecs]
        work = all_reduce_sum(comm, *(rung.work_seconds for rung in rungs))
        for rung, seconds in zip(rungs, work, strict=True):
            rung.work_seconds = seconds / comm.size
        movement = Movement.of(replica.parameters, slice(None), rungs[0].stream)
        replica.state[_KEY] = _Pilot(rungs, movement, seconds_per_byte=seconds_per_byte, last_step=comm.now())

    def _rung(self, codec: Codec, replica: Replica, comm: Transport) -> Rung:
        """Try a codec out on a vector like those that it will get."""
        stream = self.stream(replica, f"movement as {codec!r}")
        trial = self.stream(replica, f"trial of {codec!r}")
        vector = torch.randn(replica.parameters.numel(), generator=stream.shared_generator()).to(replica.parameters)
        began = comm.now()
        encoded = codec.encode(vector, trial)
        codec.decode(encoded, vector, trial)
        work = comm.now() - began
        replica.state["streams"].pop(f"trial of {codec!r}")
        added_up = codec.linear and codec.summands is None
        sent = encoded.nbytes * (2 * (comm.size - 1) / comm.size if added_up else comm.size - 1)
        sums = 2 if isinstance(codec, PowerSGD) else 1
        hops = sums * (2 * (comm.size - 1) if added_up and comm.size > 2 else 1)
        return Rung(codec, stream, sent, hops, work + 2 * sent * _KERNEL_SECONDS_PER_BYTE)

    def step(self, replica: Replica, comm: Transport) -> None:
        if replica.fill:  # momentum alone should not move a replica that had no samples
            replica.update()
        if comm.size == 1:
            return
        pilot: _Pilot = replica.state[_KEY]
        pilot.stepped(comm.now())
        if pilot.pending is not None and pilot.pending.done:
            self._complete(replica, pilot)
        if pilot.pending is None and replica.step - pilot.began >= pilot.period:
            self._begin(replica, comm, pilot)

    def _begin(self, replica: Replica, comm: Transport, pilot: _Pilot, *, finished: bool = False) -> None:
        movement = pilot.movement
        movement.take(replica.parameters)
        own = (float(finished), pilot.step_seconds, pilot.seconds_per_byte, pilot.hop_seconds)
        pilot.began = replica.step

        def exchange(beside: Transport) -> None:
            began = beside.now()
            ready, *shared = (total / beside.size for total in all_reduce_sum(beside, *own))
            met = beside.now()
            conditions = Conditions(*shared)
            rung = pilot.rungs[choose(pilot.rungs, conditions, self.budget)]
            pilot.all_finished = ready == 1.0
            if pilot.all_finished:
                movement.exchange_all(beside, ring, rung.codec)
            else:
                movement.exchange(beside, ring, rung.codec, rung.stream)
                pilot.exchanged(rung, conditions, self.overhead, met - began, beside.now() - met)

        pilot.pending = comm.start(exchange)

    def _complete(self, replica: Replica, pilot: _Pilot) -> None:
        assert pilot.pending is not None
        pilot.pending.wait()
        pilot.pending = None
        pilot.movement.complete(replica.parameters)
        pilot.late[replica.step - pilot.began] += 1

    def finish(self, replica: Replica, comm: Transport) -> None:
        """Go on exchanging until all ranks are done: a slower one still gets what this one has learnt."""
        pilot: _Pilot = replica.state[_KEY]
        if comm.size == 1:
            return
        while not pilot.all_finished:
            if pilot.pending is None:
                self._begin(replica, comm, pilot, finished=True)
            self._complete(replica, pilot)
        replica.parameters.copy_(pilot.movement.anchor)  # the same to the last bit on every rank
        replica.notes["exchanges"] = dict(pilot.used)
        replica.notes["steps_late"] = dict(sorted(pilot.late.items()))


@dataclass
class _Pilot:
    """What a rank knows of its own pace and of the link, and the exchange under way."""

    rungs: list[Rung]
    movement: Movement
    seconds_per_byte: float
    last_step: float
    hop_seconds: float = 0.0
    period: int = 1
    """Fewest steps between the beginnings of two exchanges."""
    began: int = 0
    """The step after which the last exchange began."""
    all_finished: bool = False
    pending: Pending | None = field(default=None, repr=False)
    steps: deque[float] = field(default_factory=lambda: deque(maxlen=15))
    hops: deque[float] = field(default_factory=lambda: deque(maxlen=15))
    used: Counter[str] = field(default_factory=Counter)
    late: Counter[int] = field(default_factory=Counter)

    @property
    def step_seconds(self) -> float:
        """Of the median step: a pause for an evaluation does not count."""
        return statistics.median(self.steps) if self.steps else 0.0

    def stepped(self, now: float) -> None:
        self.steps.append(now - self.last_step)
        self.last_step = now

    def exchanged(self, rung: Rung, conditions: Conditions, overhead: float, meeting: float, seconds: float) -> None:
        """Learn from an exchange. Meeting includes waiting for slower ranks, so the quickest tells what a hop takes."""
        self.used[describe(rung.codec)] += 1
        self.hops.append(meeting / 2)
        self.hop_seconds = min(self.hops)
        wire = seconds - rung.seconds(replace(conditions, seconds_per_byte=0.0))
        observed = max(wire, 0.05 * seconds) / rung.bytes
        self.seconds_per_byte += (1 - _INERTIA) * (observed - self.seconds_per_byte)
        self.period = rung.period(conditions, overhead)
