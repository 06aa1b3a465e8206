"""Replicas in virtual time: with the same mathematics or only its sizes, and the time that a profile says.

Those by sizes have torch's own meta tensors, which have a length and a type and nothing in them. So strategies run as
they are, thousands of replicas need no memory, and code that looks at a value fails with an error that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

from minga.comm.transport import Transport
from minga.data.order import Order, Share
from minga.data.stream import StreamedOrder
from minga.measure.spans import NO_SPANS, Spans
from minga.metrics.evaluation import Findings
from minga.model.layout import Bucket, Layout
from minga.model.progress import Progress
from minga.model.replica import Replica
from minga.model.sliced_optimizer import Piece, SlicedOptimizer
from minga.model.sync_batch_norm import AddUp, messages_of
from minga.simulate.profile import Profile
from minga.simulate.workplace import Workplace
from minga.training.train_state import TrainState

__all__ = ["SimulatedReplica", "SimulatedTrainState", "SizedOrder", "SizedReplica"]


class SimulatedReplica(Replica):
    """What a replica computes takes its time. Buckets are announced when they would be ready, after all is computed.

    Code that waits must not run inside of torch's backward pass, whose C++ frames can't be left and come back to: where
    BatchNorm waits for other ranks there, the pass runs on a thread of its own.
    """

    workplace: Workplace

    def compute_gradients(self, compute_loss: Callable[[], Tensor] | None) -> None:
        ready: list[Bucket] = []
        own, self.info.add_up = self.info.add_up, None
        announce, self.when_ready = self.when_ready, ready.append
        try:
            if own is None:
                self._compute(compute_loss)
            else:
                _on_a_thread(own, partial(self._compute, compute_loss))
        finally:
            self.when_ready, self.info.add_up = announce, own
        self.workplace.compute(ready, announce)

    def _compute(self, compute_loss: Callable[[], Tensor] | None, add_up: AddUp | None = None) -> None:
        self.info.add_up = add_up
        super().compute_gradients(compute_loss)

    def _apply(self, scale: float, *, good: bool, decay: float | None = None) -> None:
        super()._apply(scale, good=good, decay=decay)
        if good:
            self.workplace.update(self.layout.length)

    def optimizer_of(self, part: slice, parameters: Tensor, gradients: Tensor) -> SlicedOptimizer:
        optimizer = super().optimizer_of(part, parameters, gradients)
        update = optimizer.step

        def step(learning_rates: Sequence[float], scale: float = 1.0, decay: float | None = None) -> None:
            update(learning_rates, scale, decay)
            self.workplace.update(part.stop - part.start)

        optimizer.step = step  # type: ignore[method-assign]
        return optimizer


class SizedReplica(SimulatedReplica):
    """A replica that only has sizes."""

    def __init__(self, profile: Profile, layout: Layout, *, spans: Spans = NO_SPANS) -> None:
        self._profile = profile
        self.layout = layout
        self._tensors = []
        self._gradient_views = []
        self._pointers = []
        self.model = torch.nn.Module()
        self.channels_of_batch_norms = profile.batch_norms
        self.optimizer = _optimizer_like(profile)
        self._flat_optimizer = _SizedOptimizer(self.optimizer, self.optimizer, [])
        self.parameters = torch.empty(layout.length, dtype=profile.torch_dtype, device="meta")
        self.gradients = torch.empty_like(self.parameters)
        self._begin(spans)
        self.progress = _SizedProgress(self.parameters, self.gradients)

    def has_finite_gradients(self) -> bool:
        return True

    def digest(self) -> str:
        return ""

    def shared_seed(self) -> int:
        return 0

    def _watch_buckets(self) -> None:
        """There is no backward pass."""

    def _compute(self, compute_loss: Callable[[], Tensor] | None, add_up: AddUp | None = None) -> None:
        if add_up is not None:
            for length, dtype in messages_of(self.channels_of_batch_norms, self._profile.torch_dtype):
                add_up(torch.empty(length, dtype=dtype, device="meta"))
        self._prepare_gradients()
        if compute_loss is not None:
            self.flush_buckets()

    def _check_finite(self, places: Sequence[Any], gradients: Tensor) -> None:
        """There is nothing to see."""

    def optimizer_state(self) -> list[Piece]:
        names = ["exp_avg", "exp_avg_sq"] if self.optimizer_is_adaptive else ["momentum_buffer"]
        if not (self.optimizer_is_adaptive or self._profile.optimizer.momentum):
            return []
        values = {name: torch.empty_like(self.parameters) for name in names}
        return [Piece(0, self.layout.length, values, frozenset(names))]

    def _slice(self, parameters: Tensor, gradients: Tensor, start: int) -> SlicedOptimizer:
        return _SizedOptimizer(self.optimizer, self.optimizer, [])


class _SizedOptimizer(SlicedOptimizer):
    """There is nothing to update."""

    def step(self, learning_rates: Sequence[float], scale: float = 1.0, decay: float | None = None) -> None:
        pass


class _SizedProgress(Progress):
    """Nobody can say which elements a vector without values is a view of."""

    def averaged(self, vector: Tensor, ranks: Sequence[int]) -> None:
        pass


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


@dataclass
class SimulatedTrainState(TrainState):
    """Its samples take time to fetch, and its model to test."""

    workplace: Workplace = field(kw_only=True)

    def fetch(self, share: Share) -> Any:
        # Of a stream, everybody reads all of it.
        self.workplace.fetch(share.total if isinstance(self.order, StreamedOrder) else len(share.indices))
        if share.indices.is_meta:
            return share.indices if len(share.indices) else None
        return super().fetch(share)

    def evaluate(self, together: Transport) -> Findings:
        findings = Findings() if self.replica.parameters.is_meta else super().evaluate(together)
        self.workplace.evaluate(together.size)
        return findings


def _on_a_thread(add_up: AddUp, compute: Callable[[AddUp], None]) -> None:
    """Run `compute(add_up)` to its end on a thread, whose calls of `add_up` are made here; either runs, never both.

    Torch's backward pass keeps its state in the thread that it runs on, so two of them can't be under way on one
    thread. Errors on either side come out here.
    """
    asked: SimpleQueue[tuple[Tensor, Future[None]] | None] = SimpleQueue()

    def ask(vector: Tensor) -> None:
        answer: Future[None] = Future()
        asked.put((vector, answer))
        answer.result()

    with ThreadPoolExecutor(1, "computing beside greenlets") as pool:
        computing = pool.submit(compute, ask)
        computing.add_done_callback(lambda _: asked.put(None))
        while (request := asked.get()) is not None:
            vector, answer = request
            try:
                add_up(vector)
            except BaseException as error:  # also a world that ends: the thread must end with it
                answer.set_exception(error)
            else:
                answer.set_result(None)
    computing.result()
