"""Where a simulated rank works: what computing takes there, by a profile, and the clock that it takes it from."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from torch import Tensor

from minga.codecs import Codec, Stream
from minga.codecs.base import CodecRuntime
from minga.comm.simulated.world import SimulatedWorld
from minga.measure.spans import Spans
from minga.model.layout import Bucket
from minga.simulate.profile import Profile

__all__ = ["PricedCodecs", "Workplace"]


class Workplace:
    """One rank's computing in virtual time."""

    def __init__(self, world: SimulatedWorld, profile: Profile, spans: Spans, *, seed: int, varied: bool) -> None:
        """`varied`: steps take longer or shorter by chance, as often as was measured; `seed`: that chance."""
        self._world = world
        self._profile = profile
        self._spans = spans
        self._ready = {layer.name: layer.ready for layer in profile.layers}
        self._chance = random.Random(seed) if varied and len(profile.spread) > 1 else None
        self._usual = profile.mean_factor if self._chance is not None else 1.0
        self._samples = 0
        self._factor = 1.0
        self.luck = 0.0
        """Seconds that its steps took less, by chance, than as many take in the mean, on a host of full speed."""

    def fetch(self, samples: int) -> None:
        """A step begins: its samples are fetched."""
        self._samples = samples
        self._factor = self._draw()
        compute = self._profile.compute_of(samples) if samples else None
        if compute is not None:
            self.luck += (self._usual - self._factor) * compute.seconds
            self._world.work(self._factor * (compute.data + compute.other))

    def compute(self, buckets: Sequence[Bucket], announce: Callable[[Bucket], None] | None) -> None:
        """Forward and backward of the samples that were fetched; each bucket is announced when it is ready."""
        if not self._samples:
            for bucket in buckets:
                if announce is not None:
                    announce(bucket)
            return
        compute, work = self._profile.compute_of(self._samples), self._world.work
        with self._spans.span("forward"):
            work(self._factor * compute.forward)
        with self._spans.span("backward"):
            done = 0.0
            for bucket in buckets:
                ready = max(self._ready.get(place.name, 1.0) for place in bucket.places)
                work(self._factor * compute.backward * max(0.0, ready - done))
                done = max(done, ready)
                if announce is not None:
                    announce(bucket)
            work(self._factor * compute.backward * (1 - done))

    def update(self, elements: int) -> None:
        """The optimizer has changed so many parameters."""
        self._world.work(self._profile.seconds_of_update(elements))

    def evaluate(self, ranks: int) -> None:
        """The model is tested by so many ranks."""
        self._world.work(self._profile.evaluate_seconds / ranks)

    def _draw(self) -> float:
        if self._chance is None:
            return 1.0
        spread = self._profile.spread
        place = self._chance.random() * (len(spread) - 1)
        low = int(place)
        return spread[low] + (place - low) * (spread[low + 1] - spread[low])


class PricedCodecs(CodecRuntime):
    """Codecs in virtual time: encoding and decoding take what a profile says, on the rank that asks.

    What is made of a vector without values has none either.
    """

    def __init__(self, world: SimulatedWorld, profile: Profile) -> None:
        self._world = world
        self._profile = profile

    def encode(self, codec: Codec, vector: Tensor, stream: Stream, *, once: bool = False) -> Tensor:
        if not vector.is_meta:
            encoded = super().encode(codec, vector, stream, once=once)
        else:
            encoded = codec.encoded_like(vector, stream) if codec.changes_form else vector
        self._world.work(self._profile.seconds_to_encode(codec, vector.numel()))
        return encoded

    def decode(self, codec: Codec, encoded: Tensor, into: Tensor, stream: Stream) -> None:
        if not into.is_meta:
            super().decode(codec, encoded, into, stream)
        if encoded is not into:
            self._world.work(self._profile.seconds_to_decode(codec, into.numel()))

    def mean_by_sums(
        self, codec: Codec, vector: Tensor, ranks: int, stream: Stream, add_up: Callable[[Tensor], None]
    ) -> None:
        self._world.work(self._profile.seconds_to_encode(codec, vector.numel()))
        if not vector.is_meta:
            super().mean_by_sums(codec, vector, ranks, stream, add_up)
        else:
            for part in codec.summed_like(vector, stream):
                add_up(part)
        if codec.changes_form:
            self._world.work(self._profile.seconds_to_decode(codec, vector.numel()))

    def residual_after(self, codec: Codec, vector: Tensor, stream: Stream) -> float | None:
        return None if vector.is_meta else super().residual_after(codec, vector, stream)
