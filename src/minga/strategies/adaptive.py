"""The choice for people who don't want to choose: exchange as often and as faithfully as hides behind computing."""

from __future__ import annotations

import statistics
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from minga.codecs import Codec, Half, Int8, Plain, PowerSGD, Sign
from minga.comm import Done, Pending, Transport, all_reduce_sum, barrier
from minga.comm.collectives import direct, ring
from minga.config import FieldError
from minga.replica import Replica
from minga.spec import describe
from minga.strategies.base import Strategy, refuse_momentum_correction
from minga.strategies.movement import Movement
from minga.strategies.rungs import Conditions, Rung, choose

__all__ = ["Adaptive"]

_KEY = "adaptive"
# From the largest to the smallest, about half the bytes each time. Which of them carries most of a movement depends on
# the optimizer: those of SGD are well told by thin matrices, those of Adam, all of about the same size, by their signs.
_LADDER: tuple[Codec, ...] = (
    Plain(),
    Half(),
    Int8(rounding="nearest", feedback=True),
    Sign(),
    *(PowerSGD(rank=rank, factors="int8") for rank in (32, 16, 8, 4, 2, 1)),
)
# The exchanges before which the forms are measured on what there is to send. The first times find out what kind of
# movements there are, the later ones follow them; PowerSGD gets better with each.
_MEASURED = {1, 2, 3, 5, 8, *(16 * 2**power for power in range(40))}
# How much of the old estimate of the link stays when a new one comes: little, so that changes are followed quickly.
_INERTIA = 0.5


@dataclass(frozen=True, kw_only=True)
class Adaptive(Strategy):
    """Averages in the background, in the most faithful form that hides behind computing; nobody ever waits.

    Every replica trains on; its movement since the last averaging is exchanged meanwhile, and when the mean is there
    it takes the movement's place (see `local_sgd` with overlap). The next exchange begins when the last has ended, so
    the period follows the network by itself, also when it changes. With each exchange the ranks tell each other how
    long a step and a byte take, and choose the form of the next one: whole numbers, 16 bits, 8, 1, or PowerSGD of some
    rank; of those that arrive within `budget` steps the one that carries most of a movement, which is measured now and
    then. A peer that fails is missed at the next exchange.
    """

    replicas_differ: ClassVar[bool] = True

    budget: float = 2.0
    """The accuracy budget: how many steps late news of the others may be. If no form of exchange is as quick, the
    quickest is taken: later news, but nobody waits."""

    overhead: float = 0.03
    """The part of computing time that encoding and decoding may take; exchanges are spaced out accordingly."""

    def check(self) -> None:
        if not 0.5 <= self.budget <= 1000:
            raise FieldError(("budget",), f"should be between 0.5 and 1000 steps, not {self.budget:g}")
        if not 0.001 <= self.overhead <= 1:
            raise FieldError(("overhead",), f"should be between 0.001 and 1, not {self.overhead:g}")
        refuse_momentum_correction(self.codec)

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
        movement = Movement.of(replica.parameters, slice(None), rungs[-1].stream, comm.size)
        # The first exchange, before anything is known of the network, is the smallest.
        replica.state[_KEY] = _Pilot(rungs, rungs[-1], movement, seconds_per_byte, last_step=comm.now())

    def _rung(self, codec: Codec, replica: Replica, comm: Transport) -> Rung:
        """Try a codec out on a vector like those that it will get."""
        stream = self.stream(replica, f"movement as {codec!r}")
        trial = self.stream(replica, f"trial of {codec!r}")
        vector = torch.randn(replica.parameters.numel(), generator=stream.shared_generator()).to(replica.parameters)
        began = comm.now()
        encoded = codec.encode(vector, trial)
        for _ in range(comm.size):
            codec.decode(encoded, vector, trial)
        work = comm.now() - began
        trial.residual = None
        sent = encoded.nbytes * (2 * (comm.size - 1) / comm.size if codec.linear else comm.size - 1)
        hops = 2 * (comm.size - 1) if codec.linear and comm.size > 2 else 1
        return Rung(codec, stream, trial, sent, hops, work)

    def step(self, replica: Replica, comm: Transport) -> None:
        replica.update_alone()
        if comm.size == 1:
            return
        pilot: _Pilot = replica.state[_KEY]
        pilot.stepped(comm.now())
        if pilot.pending is not None and pilot.pending.done:
            self._complete(replica, comm, pilot)
        if pilot.pending is None and replica.step - pilot.began >= pilot.period:
            self._begin(replica, comm, pilot)

    def _begin(self, replica: Replica, comm: Transport, pilot: _Pilot, *, finished: bool = False) -> None:
        rung = pilot.rung
        communicate = pilot.movement.prepare(replica.parameters, comm, ring, rung.codec, rung.stream)
        pilot.began = replica.step
        told = (float(finished), pilot.step_seconds, pilot.seconds_per_byte, pilot.hop_seconds)
        word = torch.tensor([*told, *pilot.fidelities()], dtype=torch.float64)

        def exchange(beside: Transport) -> None:
            began = beside.now()
            direct(beside, word)  # first, so that the time of the rest is the link's, not that of a rank that is late
            met = beside.now()
            communicate(beside)
            pilot.seconds = (met - began, beside.now() - met)

        pilot.word, pilot.pending = word, comm.start(exchange)

    def _complete(self, replica: Replica, comm: Transport, pilot: _Pilot) -> None:
        assert pilot.pending is not None and pilot.word is not None
        pilot.pending.wait()
        pilot.pending = None
        pilot.movement.complete(replica.parameters)
        pilot.late[replica.step - pilot.began] += 1
        finished, step, byte, hop, *fidelities = (pilot.word / comm.size).tolist()
        pilot.all_finished = finished == 1.0
        for rung, fidelity in zip(pilot.rungs, fidelities, strict=True):
            rung.fidelity = fidelity
        pilot.learn(Conditions(step, byte, hop), self.budget, self.overhead)

    def pause(self, replica: Replica, comm: Transport) -> None:
        """Who has begun an exchange that others have not must be met by them; all wait for the last one's end."""
        pilot: _Pilot = replica.state[_KEY]
        if comm.size == 1:
            return
        begun = torch.zeros(comm.size, dtype=torch.float64)
        begun[comm.rank] = pilot.used.total() + (pilot.pending is not None)
        ring(comm, begun)
        if begun[comm.rank] < begun.max():
            if pilot.pending is not None:
                self._complete(replica, comm, pilot)
            self._begin(replica, comm, pilot)
        if pilot.pending is not None:
            pilot.pending.wait()
            pilot.pending = Done(comm.rank)
            pilot.movement.arrive()

    def resume(self, replica: Replica, comm: Transport) -> None:
        replica.state[_KEY].last_step = comm.now()

    def finish(self, replica: Replica, comm: Transport) -> None:
        """Go on exchanging until all ranks are done: a slower one still gets what this one has learnt."""
        pilot: _Pilot = replica.state[_KEY]
        if comm.size == 1:
            return
        while not pilot.all_finished:
            if pilot.pending is None:
                self._begin(replica, comm, pilot, finished=True)
            self._complete(replica, comm, pilot)
        pilot.movement.settle(replica.parameters, comm, ring, pilot.rung.codec)
        replica.notes["exchanges"] = dict(pilot.used)
        replica.notes["steps_late"] = dict(sorted(pilot.late.items()))


@dataclass
class _Pilot:
    """What a rank knows of its own pace and of the link, and the exchange under way."""

    rungs: list[Rung]
    rung: Rung
    """The form of the exchange under way, or of the next one."""
    movement: Movement
    seconds_per_byte: float
    last_step: float
    hop_seconds: float = 0.0
    period: int = 1
    """Fewest steps between the beginnings of two exchanges."""
    began: int = 0
    """The step after which the last exchange began."""
    all_finished: bool = False
    word: Tensor | None = None
    """What the ranks tell each other with an exchange; afterwards the sum of it."""
    seconds: tuple[float, float] = (0.0, 0.0)
    """Of the last exchange: until all were there, and after that."""
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

    def fidelities(self) -> list[float]:
        """How much of the movement under way each form would carry; measured now and then, as that takes time."""
        exchanges = self.used.total()
        if self.movement.moved is not None and exchanges in _MEASURED:
            return [rung.measure(self.movement.moved) for rung in self.rungs]
        return [rung.fidelity for rung in self.rungs]

    def learn(self, conditions: Conditions, budget: float, overhead: float) -> None:
        """From the last exchange, for the next one. What all ranks must do alike follows from what all were told."""
        meeting, seconds = self.seconds
        self.used[describe(self.rung.codec)] += 1
        # Meeting includes waiting for slower ranks, so the quickest tells what a hop takes.
        self.hops.append(meeting)
        self.hop_seconds = min(self.hops)
        wire = max(seconds - self.rung.hops * self.hop_seconds, 0.1 * seconds)
        self.seconds_per_byte += (1 - _INERTIA) * (wire / self.rung.bytes - self.seconds_per_byte)
        self.rung = self.rungs[choose(self.rungs, conditions, budget, overhead)]
        self.period = self.rung.period(conditions, overhead)
