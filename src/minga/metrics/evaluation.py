"""Loss and metrics on the test set, shared between ranks: their states are put together, then one value is computed."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from minga.comm import COLLECTIVES, Transport
from minga.data.batches import part_of
from minga.errors import WorkloadError
from minga.metrics.metric import Mean, Metric, as_metric
from minga.model.evaluating import evaluating
from minga.model.replica import Replica
from minga.runs.workload import FurtherTest, Workload

__all__ = ["Findings", "evaluate"]

_COMBINED_AT_ONCE = 32


@dataclass
class Findings:
    """What an evaluation has found, over the whole test set."""

    numbers: dict[str, float] = field(default_factory=dict)
    """By metric. The first that is not the loss stands for all, where one number must."""

    tables: dict[str, list[list[float]]] = field(default_factory=dict)
    """Of metrics that are more than a number, such as a confusion matrix."""

    lower_is_better: list[str] = field(default_factory=list)
    """Of which metrics."""

    def take(self, other: Findings) -> None:
        """Have what another has."""
        self.numbers.update(other.numbers)
        self.tables.update(other.tables)
        self.lower_is_better = other.lower_is_better


def evaluate(workload: Workload, replica: Replica, comm: Transport, device: torch.device) -> Findings:
    """Metrics over the whole test set, of which each rank of `comm` looks at its part; nothing if there is none."""
    if workload.test is None:
        return Findings()
    metrics = {"loss": _Loss(workload), **workload.metrics}
    own = FurtherTest(data=workload.test, metrics=metrics, predict=workload.predict, batch=workload.test_batch)
    model = replica.model
    with evaluating(model):
        states = [state for test in (own, *workload.further_tests) for state in _look(test, model, comm, device)]
    gathered = _gather(comm, [state.total for state in states])
    findings = Findings(lower_is_better=workload.lower_is_better)
    values = {}
    for state, parts in zip(states, gathered, strict=True):
        if not parts:
            raise WorkloadError(f"{workload.name}.test has no samples; give some, or None for no test")
        values[state.name] = state.metric.value(state.metric.combine(parts))
    first = [name for name in ("loss", workload.main_metric) if name in values]
    for name in dict.fromkeys([*first, *values]):
        value = values[name]
        if isinstance(value, list):
            findings.tables[name] = value
        else:
            findings.numbers[name] = value
    return findings


class _State:
    """What a metric knows of the batches so far."""

    def __init__(self, name: str, metric: Metric) -> None:
        self.name = name
        self.metric = metric
        self._waiting: list[Tensor] = []

    def add(self, state: Tensor) -> None:
        self._waiting.append(state.detach().double().flatten().cpu())
        if len(self._waiting) == _COMBINED_AT_ONCE:
            self._waiting = [self.metric.combine(self._waiting)]

    @property
    def total(self) -> Tensor:
        """Of all batches; empty where there was none."""
        return self.metric.combine(self._waiting) if self._waiting else torch.zeros(0, dtype=torch.float64)


class _Loss(Mean):
    """Of the workload, whose losses are means over samples."""

    def __init__(self, workload: Workload) -> None:
        self._loss = workload.loss

    def sum_and_count(self, outputs: Tensor, targets: Tensor) -> tuple[float, int]:
        return float(self._loss(outputs, targets)) * len(targets), len(targets)


def _look(test: FurtherTest, model: nn.Module, comm: Transport, device: torch.device) -> list[_State]:
    """The states of this rank's part of a test."""
    states = [_State(name, as_metric(name, metric)) for name, metric in test.metrics.items()]
    for batch in part_of(test.data, comm.rank, comm.size, test.batch, device):
        outputs, targets = test.predict(model, batch)
        for state in states:
            state.add(state.metric.state(outputs, targets))
    return states


def _gather(comm: Transport, states: list[Tensor]) -> list[list[Tensor]]:
    """For each state, those of all ranks that have seen samples, in their order; the same on every rank."""
    if comm.size == 1:
        return [[state] if len(state) else [] for state in states]
    # Ranks may have states of different lengths, or none: lengths first.
    lengths = _on_all_ranks(comm, torch.tensor([float(len(state)) for state in states], dtype=torch.float64))
    own = torch.cat(states)
    contents = _on_all_ranks(comm, own, int(lengths.sum(dim=1).max()))
    gathered: list[list[Tensor]] = [[] for _ in states]
    for each, content in zip(lengths, contents, strict=True):
        at = 0
        for parts, length in zip(gathered, map(int, each), strict=True):
            if length:
                parts.append(content[at : at + length])
            at += length
    return gathered


def _on_all_ranks(comm: Transport, own: Tensor, length: int | None = None) -> Tensor:
    """A row for each rank. A sum of tables in which each rank has filled its row: zeros change no bit of the others."""
    table = torch.zeros(comm.size, len(own) if length is None else length, dtype=torch.float64)
    table[comm.rank, : len(own)] = own
    COLLECTIVES["tree"](comm, table.view(-1))
    return table
