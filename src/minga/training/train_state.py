"""What a rank trains: its replica, its workload, its place in the data and in the run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from minga.comm.transport import Transport
from minga.data.batches import batches_ahead, blocks_of, collate, fetch, length, to_device
from minga.data.order import Order, Share
from minga.data.read_ahead import ReadAhead
from minga.data.reader_processes import ReaderProcesses
from minga.data.stream import StreamedOrder, StreamReader, is_stream
from minga.errors import WorkloadError
from minga.measure.spans import NO_SPANS, Spans
from minga.metrics.evaluation import Findings, evaluate
from minga.model.keras_parts import part_seeds, register_variables
from minga.model.replica import Replica, trainable
from minga.model.weights import take_weights
from minga.runs.experiment import Experiment, Training
from minga.runs.workload import Workload
from minga.strategies.base import Strategy
from minga.strategies.capabilities import Agreeing, capability
from minga.strategies.parameter_server.state import ServerState
from minga.strategies.parameter_server.update_log import Period

__all__ = ["Beginning", "TrainState", "build_train_state", "order_of"]


@dataclass(frozen=True)
class Beginning:
    """Where a group of ranks has begun, so that it is known later who took which samples."""

    step: int
    order: Order
    rank: int
    trainers: int


@dataclass
class TrainState:
    """A replica with its workload and its position."""

    workload: Workload
    replica: Replica
    order: Order
    batch: int
    """Samples of this rank in a full step; where they don't divide evenly, the larger number."""
    total_batch: int | None
    """Samples of all ranks in a full step, where that is fixed; otherwise it is `batch` times their number."""
    epochs: int | None
    steps: int | None
    base_learning_rates: list[float] = field(default_factory=list)
    beginning: Beginning | None = None
    """Of the group of ranks that it trains in, or has trained in last."""
    ahead: ReadAhead | None = None
    """Who reads the next batches while this one is computed with; None: each is read when it is needed."""
    readers: ReaderProcesses | None = None
    """Processes that read; None: this one does."""
    seed: int = 0

    @classmethod
    def of(cls, experiment: Experiment, workload: Workload, replica: Replica, order: Order, **own: Any) -> Self:
        """At the beginning of an experiment; `own`: the fields that only some class of states has."""
        settings = experiment.training
        batch = settings.batch or workload.batch
        if settings.total_batch is not None:
            batch = -(-settings.total_batch // experiment.cluster.nodes)
        return cls(
            workload=workload,
            replica=replica,
            order=order,
            batch=batch,
            total_batch=settings.total_batch,
            epochs=None if settings.steps is not None else settings.epochs or workload.epochs,
            steps=settings.steps,
            base_learning_rates=replica.learning_rates,
            seed=settings.seed,
            **own,
        )

    def begin(self, strategy: Strategy, rank: int, trainers: int) -> None:
        """From here on the ranks that train stay the same."""
        replica, state = self.replica, ServerState.of(self.replica)
        self.beginning = Beginning(replica.step, self.order.copy(), rank, trainers)
        state.periods += 1
        workers = tuple(map(state.name_of, range(trainers)))
        facts = capability(strategy, replica, Agreeing).agreed_facts(replica)
        state.period = Period(state.periods, replica.step, self.order.position(), workers, facts)

    def begin_alone(self) -> None:
        """All samples until here are in the parameters or owed; should ranks recover before training, this holds."""
        self.beginning = Beginning(self.replica.step, self.order.copy(), 0, 1)
        self.replica.progress.begin(self.replica.step, 1)

    @property
    def survivor(self) -> bool:
        """Whether it has trained with the ranks that are there, or were before."""
        return self.beginning is not None

    @property
    def device(self) -> torch.device:
        return self.replica.parameters.device

    @property
    def progress(self) -> float:
        """0 at the start, 1 at the end."""
        if self.steps is not None:
            return self.replica.step / self.steps
        assert self.epochs is not None
        return self.order.progress / self.epochs

    def share_of(self, trainers: int) -> float:
        """Samples of a rank in a full step, on average."""
        return self.batch if self.total_batch is None else self.total_batch / trainers

    def fetch(self, share: Share) -> Any:
        """The samples of a share as one batch; None where there are none."""
        if not len(share.indices):
            return None
        if isinstance(self.order, StreamedOrder):
            return collate(self.order.read(share), self.device)
        if self.ahead is not None and self.beginning is not None:
            return self.ahead.take(share, self.order, self._coming)
        return self.read(share)

    def read(self, share: Share) -> Any:
        """The samples of a share that has some, by their index."""
        if self.readers is None:
            return fetch(self.workload.train, share.indices, self.device)
        first = share.stretches[0]
        # Whoever reads it, before or after a checkpoint: the same random numbers at the same place.
        seed = ((self.seed * 1_000_003 + first.epoch) * 1_000_003 + first.start) % (1 << 62)
        return to_device(self.readers.read(share.indices, seed), self.device)

    def _coming(self, order: Order) -> Share:
        """This rank's next share, if the ranks stay who they are; `order` goes on."""
        assert self.beginning is not None
        return order.take(self.beginning.rank, self.beginning.trainers, self.batch, self.total_batch)

    def evaluate(self, together: Transport) -> Findings:
        """How good the model is, each of these ranks looking at its part of the test set."""
        return evaluate(self.workload, self.replica, together, self.device)

    def loss_of(self, batch: Any) -> Tensor:
        try:
            outputs, targets = self.workload.predict(self.replica.model, batch)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            # Torch's message for BatchNorm over a single sample, which comes as a surprise after a whole epoch.
            raise WorkloadError(f"{error}; training.drop_last=true leaves short last steps out") from error
        return self.workload.loss(outputs, targets)

    def schedule_learning_rate(self) -> None:
        if self.workload.schedule is not None:
            factor = self.workload.schedule(self.progress)
            for group, rate in zip(self.replica.optimizer.param_groups, self.base_learning_rates, strict=True):
                group["lr"] = rate * factor


def build_train_state(
    experiment: Experiment,
    workload: Workload,
    rank: int,
    spans: Spans = NO_SPANS,
    *,
    make_replica: Callable[..., Replica] = Replica,
    reads: bool = True,
) -> TrainState:
    """The model of one rank, from the experiment's seed or a file; afterwards each rank draws its own random numbers.

    `reads`: whether it will need samples, which servers don't.
    """
    settings = experiment.training
    device = torch.device("cpu")
    if experiment.cluster.device == "cuda":
        device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.manual_seed(settings.seed)
    model = workload.model()
    register_variables(model)
    model = model.to(device)
    if settings.start_from is not None:
        take_weights(model, Path(settings.start_from))
    optimizer = workload.optimizer([tensor for _, tensor in trainable(model)])
    # With a fixed total batch, one node alone would have the same: nothing grows.
    growth = 1 if settings.total_batch is not None else experiment.cluster.nodes
    factor = {"constant": 1.0, "linear": growth, "sqrt": math.sqrt(growth)}[settings.learning_rate_rule]
    for group in optimizer.param_groups:
        if settings.learning_rate is not None:
            group["lr"] = settings.learning_rate
        group["lr"] *= factor
    replica = make_replica(model, optimizer, spans=spans)
    replica.rank = rank
    part_seeds(model, rank)
    torch.manual_seed(settings.seed * 1_000_003 + rank + 1)
    order = order_of(workload.train, settings.seed, drop_last=settings.drop_last)
    if workload.schedule is not None and order.samples is None and settings.steps is None:
        raise WorkloadError(
            f"{workload.name} has a schedule for its learning rate, and its data is a stream without a length, so "
            "nobody knows how far training has come; give the stream a __len__, or train with --steps"
        )
    train_state = TrainState.of(experiment, workload, replica, order)
    if reads:
        _set_readers(train_state, settings)
    return train_state


def _set_readers(train_state: TrainState, settings: Training) -> None:
    """Who reads samples before they are needed."""
    dataset = train_state.workload.train
    if is_stream(dataset):
        if settings.readers:
            raise WorkloadError("a stream is read one sample after the other; use training.readers=0")
        return
    usual = max(batches_ahead(dataset), 2 * settings.readers)
    batches = settings.read_ahead if settings.read_ahead is not None else usual
    if settings.readers:
        train_state.readers = ReaderProcesses(dataset, settings.readers)
    if batches:
        threads = {"threads": settings.readers} if settings.readers else {}
        train_state.ahead = ReadAhead(train_state.read, batches=batches, **threads)


def order_of(dataset: Any, seed: int, *, shuffle: bool = True, drop_last: bool = False) -> Order:
    """Which samples of a data set come when; those of a stream come in its own order."""
    if is_stream(dataset):
        return StreamedOrder(StreamReader(dataset), drop_last=drop_last)
    return Order(length(dataset), seed, shuffle=shuffle, blocks=blocks_of(dataset), drop_last=drop_last)
