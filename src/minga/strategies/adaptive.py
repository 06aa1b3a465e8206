"""The choice for people who don't want to choose: exchange as often and as faithfully as hides behind computing."""

from __future__ import annotations

import math
import statistics
from collections import Counter, deque
from dataclasses import dataclass, field

from minga.base.config import FieldError
from minga.base.lazy import Tensor, torch
from minga.base.spec import describe
from minga.codecs import Codec, Half, Int4, Int8, Plain, PowerSGD, Sign
from minga.codecs.blocks import BlockCodec
from minga.comm import Done, Pending, Transport, all_reduce_sum, barrier, broadcast
from minga.comm.collectives import direct, ring
from minga.model.replica import Replica
from minga.strategies.base import Strategy, Traits, refuse_momentum_correction
from minga.strategies.capabilities import Anchored, Checkpointed
from minga.strategies.compression_levels import CompressionLevel, Conditions, choose, worth_measuring
from minga.strategies.delta import LAST, Delta

__all__ = ["Adaptive"]

_KEY = "adaptive"
# From the largest to the smallest, about half the bytes each time. Which of them carries most of a delta depends on
# the optimizer: those of SGD are well approximated by thin matrices, those of Adam, all of about the same size, by
# their signs.
_CODECS: tuple[Codec, ...] = (
    Plain(),
    Half(),
    Int8(rounding="nearest", feedback=True),
    Int4(),
    Sign(),
    *(PowerSGD(rank=rank, factors="int8") for rank in (32, 16, 8, 4, 2, 1)),
)
# The exchanges before which forms that might be the best are measured on what there is to send, some in a row: at
# first, to find out what kind of deltas there are, and seldom later on.
_IN_A_ROW = 8
_FIRST_OF_ROW = (1, *(8**power for power in range(2, 12)))
_OVERHEAD, _OVERHEAD_OF_ADAM = 0.02, 0.08
# What rounding to 8, 4 or 1 bits leaves out of Adam's deltas is spread over all parameters like noise, and cost little
# accuracy in trials, for how much it is; docs/slow-networks.md has the numbers, which are few. What thin matrices leave
# out is whole directions.
_WEIGHT_OF_ROUNDING = 0.2
# How often each form is tried out at the start; the quickest time counts.
_TRIALS = 3
# Work or steps that take no time at all, as in simulations without a time for them, would be infinitely cheap.
_LEAST_SECONDS = 1e-9
# Besides encoding and decoding, the parameters are gone through about so often in an exchange.
_PASSES = 6
# Of parameters that all have, so many are enough to time the link.
_SAMPLE = 1 << 14
# Reported slowdowns of an exchange count up to here; an interruption would make it many times as long.
_LARGEST_SLOWDOWN = 5.0
# How much of the old estimate of the link stays when a new one comes: little, so that changes are followed quickly.
_INERTIA = 0.5


@dataclass(frozen=True, kw_only=True)
class Adaptive(Strategy, Checkpointed, Anchored):
    """Averages in the background, in the form that brings the freshest news without slowing computing; nobody waits.

    Every replica trains on; its delta since the last averaging is exchanged meanwhile, and when the mean is there
    it takes the delta's place (see `local_sgd` with overlap). The next exchange begins when the last has ended, so
    the period follows the network by itself, also when it changes. With each exchange the ranks share how
    long a step, a byte and encoding take, and choose the form of the next one: whole numbers, 16 bits, 8, 4, 1, or
    PowerSGD of some rank; of those that arrive within `budget` steps the one with which replicas know most of each
    other: small forms come more often, but leave something out, and how much is measured now and then.
    A peer that fails is missed at the next exchange.
    """

    budget: float = 2.0
    """The accuracy budget: how many steps late news of the others may be. If no form of exchange is as quick, the
    quickest is taken: later news, but nobody waits."""

    overhead: float | None = None
    """The part of computing time that exchanges may take from it; they are spaced out accordingly. By default 0.02, for
    Adam and its relatives 0.08: they make steps of the same length however noisy gradients are, so their replicas part
    sooner."""

    @property
    def traits(self) -> Traits:
        return Traits(adapts=True, codecs=(*self._codecs, LAST), epochs_factor=lambda nodes: 1.02)

    @property
    def _codecs(self) -> tuple[Codec, ...]:
        return _CODECS if isinstance(self.codec, Plain) else (self.codec,)

    def check(self) -> None:
        if not 0.5 <= self.budget <= 1000:
            raise FieldError(("budget",), f"should be between 0.5 and 1000 steps, not {self.budget:g}")
        if self.overhead is not None and not 0.001 <= self.overhead <= 1:
            raise FieldError(("overhead",), f"should be between 0.001 and 1, not {self.overhead:g}")
        refuse_momentum_correction(self.codec)

    def start(self, replica: Replica, comm: Transport) -> None:
        super().start(replica, comm)
        sent = replica.parameters[:_SAMPLE]
        barrier(comm)
        began = comm.now()
        broadcast(comm, sent)  # what all have already: only to see how long it takes
        barrier(comm)
        seconds_per_byte = (comm.now() - began) / sent.nbytes
        levels = [self._level(codec, replica, comm) for codec in self._codecs]
        overhead = self.overhead or (_OVERHEAD_OF_ADAM if replica.optimizer_is_adaptive else _OVERHEAD)
        work = all_reduce_sum(comm, *(level.work_seconds for level in levels))
        for level, seconds in zip(levels, work, strict=True):
            level.work_seconds = max(seconds / comm.size, _LEAST_SECONDS)
        delta = Delta.of(replica, slice(None), levels[-1].stream, comm.size)
        # The first exchange, before anything is known of the network, is the smallest.
        replica.state[_KEY] = AdaptiveState(levels, levels[-1], delta, overhead, seconds_per_byte, last_step=comm.now())

    def _level(self, codec: Codec, replica: Replica, comm: Transport) -> CompressionLevel:
        """Try a codec out on a vector like those that it will get."""
        stream = replica.stream(f"movement as {codec!r}")
        trial = replica.stream(f"trial of {codec!r}")
        vector = torch.randn(replica.parameters.numel(), generator=stream.shared_generator()).to(replica.parameters)
        work = math.inf
        for _ in range(_TRIALS):
            trial.residual = None
            began = comm.now()
            encoded = codec.encode(vector, trial)
            for _ in range(comm.size):
                codec.decode(encoded, vector, trial)
            for _ in range(_PASSES):
                vector.mul_(1.0)
            work = min(work, comm.now() - began)
        trial.residual = None
        sent = encoded.nbytes * (2 * (comm.size - 1) / comm.size if codec.linear else comm.size - 1)
        hops = 2 * (comm.size - 1) if codec.linear and comm.size > 2 else 1
        rounds = replica.optimizer_is_adaptive and isinstance(codec, BlockCodec)
        return CompressionLevel(codec, stream, trial, sent, hops, work, weight=_WEIGHT_OF_ROUNDING if rounds else 1.0)

    def step(self, replica: Replica, comm: Transport) -> None:
        replica.update()
        if comm.size == 1:
            return
        controller: AdaptiveState = replica.state[_KEY]
        now = comm.now()
        controller.steps.append(now - controller.last_step)
        controller.last_step = now
        if controller.pending is not None and controller.pending.done:
            self._complete(replica, comm, controller)
        if controller.pending is None and replica.step >= controller.due:
            self._begin(replica, comm, controller)

    def _begin(self, replica: Replica, comm: Transport, controller: AdaptiveState, *, finished: bool = False) -> None:
        level, began = controller.level, comm.now()
        communicate = controller.delta.prepare(replica, comm, ring, level.codec, level.stream)
        controller.work_seconds = comm.now() - began
        controller.began, controller.due = replica.step, max(controller.due + controller.period, replica.step + 1)
        steps = [replica.step if rank == comm.rank else 0 for rank in range(comm.size)]
        conditions = [controller.step_seconds, controller.seconds_per_byte, controller.hop_seconds]
        facts = [float(finished), *conditions, controller.slowdown, *controller.residuals()]
        message = torch.tensor([*steps, *facts], dtype=torch.float64)

        def exchange(beside: Transport) -> None:
            began = beside.now()
            direct(beside, message)  # first: the time of the rest is the link's then, not that of a rank that is late
            met = beside.now()
            communicate(beside)
            controller.seconds = (met - began, beside.now() - met)

        controller.message, controller.pending = message, comm.start(exchange)

    def _complete(self, replica: Replica, comm: Transport, controller: AdaptiveState) -> None:
        assert controller.pending is not None and controller.message is not None
        controller.pending.wait()
        controller.pending, began = None, comm.now()
        steps = [int(step) for step in controller.message[: comm.size].tolist()]
        controller.delta.complete(replica, steps=steps)
        decoding = comm.now() - began
        controller.late[replica.step - controller.began] += 1
        finished, step, byte, hop, slowdown, *residuals = (controller.message[comm.size :] / comm.size).tolist()
        controller.all_finished = finished == 1.0
        controller.worked(decoding, slowdown)
        for level, residual in zip(controller.levels, residuals, strict=True):
            level.residual = residual
        controller.learn(Conditions(max(step, _LEAST_SECONDS), byte, hop, controller.overhead, self.budget))

    def pause(self, replica: Replica, comm: Transport) -> None:
        """Who has begun an exchange that others have not must be met by them; all wait for the last one's end."""
        controller: AdaptiveState = replica.state[_KEY]
        if comm.size == 1:
            return
        begun = controller.used.total() + (controller.pending is not None)
        if begun < _most(comm, begun):
            if controller.pending is not None:
                self._complete(replica, comm, controller)
            self._begin(replica, comm, controller)
        controller.arrive(comm.rank)

    def anchor(self, replica: Replica, comm: Transport, since: int) -> Tensor | None:
        """However old it is: to know of a better one would take the time of an exchange."""
        controller: AdaptiveState = replica.state[_KEY]
        delta, completed = controller.delta, controller.used.total()
        if completed == _most(comm, completed):
            return delta.anchor
        controller.arrive(comm.rank)  # others have taken it in already, so that it is here, or nearly
        assert delta.mean is not None
        return delta.anchor + delta.mean

    def resume(self, replica: Replica, comm: Transport) -> None:
        replica.state[_KEY].last_step = comm.now()

    def finish(self, replica: Replica, comm: Transport) -> None:
        """Go on exchanging until all ranks are done: a slower one still gets what this one has learnt."""
        controller: AdaptiveState = replica.state[_KEY]
        if comm.size == 1:
            return
        while not controller.all_finished:
            if controller.pending is None:
                self._begin(replica, comm, controller, finished=True)
            self._complete(replica, comm, controller)
        controller.delta.settle(replica, comm, ring, controller.level.codec)
        replica.notes["exchanges"] = dict(controller.used)
        replica.notes["steps_late"] = dict(sorted(controller.late.items()))


def _most(comm: Transport, count: int) -> int:
    """The largest of all ranks' counts."""
    counts = torch.zeros(comm.size, dtype=torch.float64)
    counts[comm.rank] = count
    ring(comm, counts)
    return int(counts.max())


@dataclass
class AdaptiveState:
    """What a rank knows of its own pace and of the link, and the exchange under way."""

    levels: list[CompressionLevel]
    level: CompressionLevel
    """The form of the exchange under way, or of the next one."""
    delta: Delta
    overhead: float
    seconds_per_byte: float
    last_step: float
    hop_seconds: float = 0.0
    worth_measuring: list[int] = field(default_factory=list)
    """The forms that might be the best, if they carry enough."""
    measured: list[int] = field(default_factory=list)
    """Those of them that are being measured, some times in a row."""
    slowdown: float = 2.0
    """How much longer the work of the last exchange took than it did when its form was tried out."""
    worked_level: CompressionLevel | None = None
    """The form of that exchange."""
    period: float = 1.0
    """Fewest steps between the beginnings of two exchanges, on average."""
    began: int = 0
    """The step after which the last exchange began."""
    due: float = 1.0
    """The step after which the next one may begin."""
    all_finished: bool = False
    message: Tensor | None = None
    """What the ranks share with an exchange; afterwards the sum of it."""
    seconds: tuple[float, float] = (0.0, 0.0)
    """Of the last exchange: until all were there, and after that."""
    work_seconds: float = 0.0
    """Of encoding in the exchange under way."""
    pending: Pending | None = field(default=None, repr=False)
    steps: deque[float] = field(default_factory=lambda: deque(maxlen=15))
    hops: deque[float] = field(default_factory=lambda: deque(maxlen=15))
    used: Counter[str] = field(default_factory=Counter)
    late: Counter[int] = field(default_factory=Counter)

    def arrive(self, rank: int) -> None:
        """Wait for the exchange under way, which is taken in when its time comes."""
        if self.pending is not None:
            self.pending.wait()
            self.pending = Done(rank)
            self.delta.arrive()

    @property
    def step_seconds(self) -> float:
        """Of the median step: a pause for an evaluation does not count."""
        return statistics.median(self.steps) if self.steps else 0.0

    def worked(self, seconds: float, slowdown: float) -> None:
        """Decoding has taken `seconds`. `slowdown`: of the exchange before this one, the mean over all ranks.

        Communication may be among it where more than two ranks add up on the way.
        """
        if self.worked_level is not None:
            self.worked_level.slowdown += (1 - _INERTIA) * (slowdown - self.worked_level.slowdown)
        self.worked_level = self.level
        self.slowdown = min((self.work_seconds + seconds) / self.level.work_seconds, _LARGEST_SLOWDOWN)

    def residuals(self) -> list[float]:
        """How much each form would leave out of the delta under way; measured now and then, as that takes time."""
        moved, exchange = self.delta.mean, self.used.total()
        assert moved is not None
        begun = max((first for first in _FIRST_OF_ROW if first <= exchange), default=exchange + 1)
        if not begun <= exchange < begun + _IN_A_ROW:
            return [level.residual for level in self.levels]
        if exchange == begun:
            self.measured = self.worth_measuring
        return [
            level.measure(moved, first=exchange == begun) if index in self.measured else level.residual
            for index, level in enumerate(self.levels)
        ]

    def learn(self, conditions: Conditions) -> None:
        """From the last exchange, for the next one; what ranks must do alike follows from what all have received."""
        meeting, seconds = self.seconds
        self.used[describe(self.level.codec)] += 1
        # Meeting includes waiting for slower ranks, so the quickest shows what a hop takes.
        self.hops.append(meeting)
        self.hop_seconds = min(self.hops)
        wire = max(seconds - self.level.hops * self.hop_seconds, 0.1 * seconds)
        self.seconds_per_byte += (1 - _INERTIA) * (wire / self.level.bytes - self.seconds_per_byte)
        current = self.levels.index(self.level)
        self.level = self.levels[choose(self.levels, conditions, current)]
        self.worth_measuring = worth_measuring(self.levels, conditions)
        self.period = self.level.period(conditions)
