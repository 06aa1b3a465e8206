"""What a strategy sees of its own steps: a profile from the inside, and whether they still take what was planned."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from minga.base.spec import describe
from minga.codecs import Codec, Stream
from minga.comm import Transport
from minga.comm.decisions import Decisions
from minga.model.layout import Bucket
from minga.model.replica import Replica
from minga.simulate.profile import CodecCost, Compute, Layer, OptimizerFacts, Profile, VectorTimer

__all__ = ["SelfProfile", "Watch"]

_STEPS, _WARM_UP = 8, 3
_TRIALS = 3
_BUCKET_BYTES = 1 << 17
# Codecs are tried on the first layers, up to about so many numbers.
_ENOUGH = 2_000_000
_TAG = 7001
# Steps after which it is known how long one takes as planned; the first one of them has only begun it all.
_USUAL = 6
# So much slower or faster than usual, some steps in a row, is a change.
_SLOWER, _FASTER = 1.5, 0.6
_IN_A_ROW = 2
# Differences below this are the machine's own.
_LEAST_SECONDS = 0.003


@dataclass
class SelfProfile:
    """Times of some steps that were trained without any exchange."""

    last: float
    """When the last step ended."""
    seconds: list[float] = field(default_factory=list)
    updates: list[float] = field(default_factory=list)
    early: dict[int, list[float]] = field(default_factory=dict)
    """By number of a bucket: how long before the last one its gradients were there."""
    now_ready: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, replica: Replica, now: float) -> Self:
        replica.cut_buckets(_BUCKET_BYTES)
        return cls(now)

    def ready(self, bucket: Bucket, now: float) -> None:
        self.now_ready[bucket.index] = now

    def stepped(self, began: float, now: float) -> None:
        """`began`: when the gradients were there and the update began."""
        end = max(self.now_ready.values(), default=0.0)
        for index, moment in self.now_ready.items():
            self.early.setdefault(index, []).append(end - moment)
        self.now_ready.clear()
        self.seconds.append(now - self.last)
        self.updates.append(now - began)
        self.last = now

    @property
    def complete(self) -> bool:
        return len(self.seconds) >= _STEPS

    @property
    def step_seconds(self) -> float:
        return statistics.median(self.seconds[_WARM_UP:])

    def profile(self, replica: Replica, comm: Transport, codecs: Iterable[Codec]) -> Profile:
        """With one sample in a step, whatever there were: nobody asks for another number of them here."""
        early = {index: statistics.median(values[_WARM_UP:] or values) for index, values in self.early.items()}
        backward = max(early.values(), default=0.0)
        update = statistics.median(self.updates[_WARM_UP:])
        ready = {
            place.name: 1 - early.get(bucket.index, 0.0) / backward if backward else 1.0
            for bucket in replica.buckets
            for place in bucket.places
        }
        stop = _first_layers(replica)
        scale, vector = replica.layout.length / stop, replica.gradients[:stop]
        shapes = tuple(replica.layout.shapes(0, stop))
        timer = VectorTimer(trials=_TRIALS, now=comm.now)
        costs = {
            describe(codec): timer.cost_of(codec, vector, Stream(shapes)) for codec in codecs if codec.changes_form
        }
        return Profile(
            workload="this run",
            layers=tuple(
                Layer(name=place.name, shape=tuple(place.shape), ready=ready[place.name])
                for place in replica.layout.places
            ),
            compute=(Compute(batch=1, forward=max(0.0, self.step_seconds - update - backward), backward=backward),),
            update_seconds=update,
            samples=1_000_000,
            batch=1,
            epochs=1,
            dtype=str(replica.parameters.dtype).removeprefix("torch."),
            codecs={
                name: CodecCost(encode=scale * cost.encode, decode=scale * cost.decode) for name, cost in costs.items()
            },
            optimizer=OptimizerFacts.of(replica),
            batch_norms=replica.channels_of_batch_norms,
            pass_seconds=scale * timer.seconds_of_a_pass(vector),
        )


def _first_layers(replica: Replica) -> int:
    """Up to where codecs are tried, where there are many layers."""
    return next((place.stop for place in replica.layout.places if place.stop >= _ENOUGH), replica.layout.length)


@dataclass
class Watch:
    """Rank 0 looks at the time of each step, and all ranks notice a change at the end of the next one."""

    until: float
    """No change counts before this moment."""
    last: float
    seconds: list[float] = field(default_factory=list)
    """Of the first steps."""
    strange: int = 0
    verdict: bool = False
    decisions: Decisions = field(default_factory=lambda: Decisions(tag=_TAG), repr=False)

    def changed(self, comm: Transport) -> bool:
        """After each step, on all ranks: whether it is time to look again, the same on all of them."""
        now = comm.now()
        spent, self.last = now - self.last, now
        self.complete()
        if self.verdict:
            return True
        self.decisions.announce(comm, [float(self._is_change(spent, now))])
        return False

    def _is_change(self, spent: float, now: float) -> bool:
        if len(self.seconds) <= _USUAL:
            self.seconds.append(spent)
            return False
        usual = statistics.median(self.seconds[1:])
        strange = spent > _SLOWER * usual or spent < _FASTER * usual
        self.strange = self.strange + 1 if strange and abs(spent - usual) > _LEAST_SECONDS else 0
        return self.strange >= _IN_A_ROW and now >= self.until

    def complete(self) -> None:
        """Nothing is under way afterwards."""
        taken = self.decisions.taken()
        if taken is not None:
            self.verdict = bool(taken[0])

    def resume(self, now: float) -> None:
        """On the clock of another process."""
        self.until, self.last = now + max(0.0, self.until - self.last), now
