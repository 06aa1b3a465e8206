"""How long runs will take: from a rough formula first, from what other cells took as soon as there are some.

    forecast = Forecast(study.cells)
    forecast.seconds(cell)          # the formula
    forecast.took(cell, 12.3)       # from now on: this cell's median; other cells scaled by their nearest relatives

The formula adds up starting, computing (measured here with a few steps of the model) and sending at the network's rate.
It is meant for "minutes or hours?", and everything that is shown of it says `estimated`.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minga.base.lazy import torch
from minga.base.spec import describe
from minga.runs.experiment import Experiment
from minga.study.cells import Cell

if TYPE_CHECKING:
    from minga.runs.workload import Workload

__all__ = ["Forecast"]

_START_SECONDS = 3.0
# Making hosts of their own and measuring what their cables really carry.
_LAB_SECONDS = 3.0
# Posting and waking up, for each step with an exchange, on the loopback.
_EXCHANGE_SECONDS = 0.001
_UNKNOWN_STEP_SECONDS = 0.01


@dataclass
class _Workload:
    """What the formula needs to know of a workload."""

    workload: Workload
    parameters: int
    samples: int
    step_seconds: dict[int, float] = field(default_factory=dict)
    """Forward and backward on one core that nobody else uses, by batch."""


class Forecast:
    """Expected seconds of each cell. To make one loads the workloads: missing data is an error before the first run."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._cells = {cell.identity: cell for cell in cells}
        self._took: dict[str, list[float]] = {}
        self._prices: dict[str, float] = {}
        from minga.data.batches import length  # these import torch, which a list of studies does without
        from minga.runs.workload import load_workload

        workloads: dict[tuple[str, str | None], _Workload] = {}
        for cell in self._cells.values():
            key = (cell.experiment.workload, cell.experiment.data)
            if key not in workloads:
                workload = load_workload(*key)
                parameters = sum(tensor.numel() for tensor in workload.model().parameters() if tensor.requires_grad)
                workloads[key] = _Workload(workload, parameters, length(workload.train))
            self._prices[cell.identity] = _price(cell.experiment, workloads[key])

    def took(self, cell: Cell, seconds: float) -> None:
        self._took.setdefault(cell.identity, []).append(seconds)

    def seconds(self, cell: Cell) -> float:
        """Of one run: as measured, or the formula corrected by how far it was off for the most similar cells."""
        if cell.identity in self._took:
            return statistics.median(self._took[cell.identity])
        ratios: dict[int, list[float]] = {}
        for identity, seconds in self._took.items():
            if identity in self._cells:
                alike = len(set(_items(cell)) & set(_items(self._cells[identity])))
                ratios.setdefault(alike, []).append(statistics.median(seconds) / self._prices[identity])
        correction = statistics.median(ratios[max(ratios)]) if ratios else 1.0
        return self._prices[cell.identity] * correction


def _items(cell: Cell) -> list[tuple[str, str]]:
    return [(path, str(value)) for path, value in cell.values.items()]


def _price(experiment: Experiment, known: _Workload) -> float:
    cluster, training = experiment.cluster, experiment.training
    batch = training.batch or known.workload.batch
    if training.total_batch is not None:
        batch = math.ceil(training.total_batch / cluster.nodes)
    epochs = training.epochs or known.workload.epochs
    steps = training.steps or epochs * math.ceil(known.samples / (batch * cluster.nodes))
    in_lab = cluster.network is not None or cluster.cpu or cluster.pin
    start = _START_SECONDS + (_LAB_SECONDS if in_lab else 0.0)
    return start + steps * (_compute_seconds(experiment, known, batch) + _exchange_seconds(experiment, known))


def _compute_seconds(experiment: Experiment, known: _Workload, batch: int) -> float:
    cluster = experiment.cluster
    shares = [min(1.0, share) for share in cluster.cpu] or [1.0]
    wanted = sum(shares) if len(shares) > 1 else shares[0] * cluster.nodes
    crowded = max(1.0, wanted / (os.cpu_count() or 1))
    slowest = min(shares) * min(cluster.speeds, default=1.0)
    if batch not in known.step_seconds:
        known.step_seconds[batch] = _measure(known.workload, batch)
    return known.step_seconds[batch] * crowded / slowest


def _exchange_seconds(experiment: Experiment, known: _Workload) -> float:
    nodes, strategy, network = experiment.cluster.nodes, experiment.chosen_strategy, experiment.cluster.network
    if nodes == 1 and strategy.traits.servers == 0:
        return 0.0
    if network is None:
        return _EXCHANGE_SECONDS
    links = [network.link_of(f"h{number}") for number in range(1, experiment.hosts + 1)]
    rates = [rate for link in [*links, network.between] for rate in (link.bandwidth_up, link.bandwidth_down) if rate]
    bits = 8 * known.parameters * (2 if describe(strategy.codec) in ("half", "bfloat16") else 4)
    # Vectors through the busiest cable: a server's, or each node's.
    servers = 0 if strategy.traits.changes_roles else strategy.traits.servers
    vectors = 2 * nodes / servers if servers else 2 * (1 - 1 / nodes)
    if strategy.traits.changes_roles:
        vectors = (vectors + 2 * nodes / strategy.traits.servers) / 2
    hops = 2 if servers else 2 * (nodes - 1)
    delay = max(link.delay for link in links) + network.between.delay
    return _EXCHANGE_SECONDS + hops * delay + (vectors * bits / min(rates) if rates else 0.0)


def _measure(workload: Workload, batch: int) -> float:
    """Seconds of forward and backward; a model that fails here is left to its run, which explains it better."""
    from minga.data.batches import first_samples
    from minga.model.torch_threads import torch_threads

    try:
        with torch_threads(1):
            model = workload.model()
            samples = first_samples(workload.train, batch, torch.device("cpu"))
            seconds = []
            for _ in range(4):
                began = time.perf_counter()
                workload.loss(*workload.predict(model, samples)).backward()  # type: ignore[no-untyped-call]
                seconds.append(time.perf_counter() - began)
            return min(seconds[1:])
    except Exception:
        return _UNKNOWN_STEP_SECONDS
