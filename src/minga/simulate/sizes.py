"""Replicas without values: vectors that have a length and a type, and nothing in them.

They are torch's own meta tensors, so strategies and codecs run as they are, and code that looks at a value fails with
an error that says so instead of going some way or other. Thousands of them need no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from minga.base.cost import tell
from minga.data.order import Order, Share
from minga.measure.spans import NO_SPANS, Spans
from minga.model.layout import Layout
from minga.model.replica import Replica
from minga.model.sliced_optimizer import Piece, SlicedOptimizer
from minga.model.sync_batch_norm.normalise import messages_of
from minga.simulate.profile import Profile

__all__ = ["SizedOrder", "SizedReplica"]


class SizedReplica(Replica):
    """A replica that only has sizes."""

    def __init__(self, profile: Profile, layout: Layout, *, spans: Spans = NO_SPANS) -> None:
        self._profile = profile
        self.layout = layout
        self.model = torch.nn.Module()
        self.channels_of_batch_norms = profile.batch_norms
        self.optimizer = _optimizer_like(profile)
        self.parameters = torch.empty(layout.length, dtype=profile.torch_dtype, device="meta")
        self.gradients = torch.empty_like(self.parameters)
        self._begin(spans)

    @property
    def optimizer_is_adaptive(self) -> bool:
        return self._profile.optimizer.adaptive

    def _watch_buckets(self) -> None:
        """There is no backward pass."""

    def compute_gradients(self, compute_loss: Callable[[], Tensor] | None) -> None:
        if self.info.add_up is not None:
            for sums in messages_of(self.channels_of_batch_norms, self._profile.torch_dtype):
                self.info.add_up(sums)
        self.info.begin()
        self._next_bucket = 0
        for bucket in self.buckets:
            bucket.filled.clear()
            bucket.pending = None
            if compute_loss is not None:
                bucket.filled.update(place.name for place in bucket.places)
        self._announce()

    def _look_at(self, places: Sequence[Any], gradients: Tensor) -> None:
        """There is nothing to see."""

    def _apply(self, scale: float, *, good: bool, decay: float | None = None) -> None:
        self.progress.last_applied_step, self.info.skipped = self.step, False
        tell("update", None, self.layout.length)

    def optimizer_state(self) -> list[Piece]:
        names = ["exp_avg", "exp_avg_sq"] if self.optimizer_is_adaptive else ["momentum_buffer"]
        if not (self.optimizer_is_adaptive or self._profile.optimizer.momentum):
            return []
        values = {name: torch.empty_like(self.parameters) for name in names}
        return [Piece(0, self.layout.length, values, frozenset(names))]

    def optimizer_of(self, part: slice, parameters: Tensor, gradients: Tensor) -> SlicedOptimizer:
        return _SizedOptimizer(self.optimizer, part.stop - part.start)


class _SizedOptimizer(SlicedOptimizer):
    """Takes the time of an update."""

    def __init__(self, template: torch.optim.Optimizer, elements: int) -> None:
        super().__init__(template, template, [])
        self._elements = elements

    def step(self, learning_rates: Sequence[float], scale: float = 1.0, decay: float | None = None) -> None:
        tell("update", None, self._elements)

    def state(self) -> list[Piece]:
        return []


def _optimizer_like(profile: Profile) -> torch.optim.Optimizer:
    """One with as many groups, for a single number: strategies ask for its learning rates and its kind."""
    facts = profile.optimizer
    groups = [{"params": [torch.zeros(1, requires_grad=True)]} for _ in range(facts.groups)]
    if facts.adaptive:
        return torch.optim.Adam(groups, lr=1e-3)
    return torch.optim.SGD(groups, lr=0.1, momentum=facts.momentum)


class SizedOrder(Order):
    """Counts samples, without an order of them."""

    def take(self, rank: int, workers: int, batch: int, total: int | None = None) -> Share:
        stretches = self.advance(total or workers * batch)
        size = sum(map(len, stretches))
        own = size * (rank + 1) // workers - size * rank // workers
        return Share(stretches, torch.empty(own, dtype=torch.int64, device="meta"), own * workers / size, size)
