"""Who normalises with whom: whether BatchNorm of a step is over the samples of all ranks, and how its sums travel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import Tensor

from minga.comm.collectives import direct, halving_doubling
from minga.comm.transport import Transport
from minga.data.order import takers
from minga.errors import WorkloadError, WrongLength
from minga.model.buffers import take_statistics
from minga.model.replica import Replica
from minga.model.sync_batch_norm import APART
from minga.runs.experiment import Experiment
from minga.strategies.capabilities import active
from minga.training.pace import Pace

__all__ = ["WholeBatch"]

# What a rank may send to get along with one delay of the network instead of several.
_SENT_AT_ONCE = 64 << 10


class WholeBatch:
    """One rank's part in BatchNorm over the samples of all."""

    def __init__(self, experiment: Experiment, replica: Replica, comm: Transport, pace: Pace) -> None:
        self._strategy = experiment.chosen_strategy
        if experiment.training.batch_norm == "each_node":
            replica.channels_of_batch_norms = ()  # auto must not reckon with messages that nobody sends
        self._wanted = bool(replica.channels_of_batch_norms)
        self._replica, self._comm, self._pace = replica, comm, pace

    @contextlib.contextmanager
    def normalised(self, total: int, trainers: int) -> Iterator[None]:
        """Around forward and backward of a step in which `trainers` ranks have `total` samples."""
        if not self._wanted or trainers == 1 or not active(self._strategy, self._replica).traits.averages_gradients:
            yield
            return
        with_samples = takers(total, trainers)
        if self._comm.rank in with_samples:
            self._replica.info.add_up = lambda vector: self._add_up(self._comm.group(with_samples), vector)
        try:
            yield
        finally:
            self._replica.info.add_up = None
        if len(with_samples) < trainers:  # the others have seen nothing of this step
            with self._pace.waiting():
                take_statistics(self._replica.model, self._comm.group(range(trainers)), root=with_samples[0])

    def _add_up(self, together: Transport, vector: Tensor) -> None:
        if together.size == 1:
            return
        short = together.size == 2 or vector.nbytes * (together.size - 1) <= _SENT_AT_ONCE
        with self._pace.waiting():
            try:
                (direct if short else halving_doubling)(together, vector)
            except WrongLength as wrong:
                raise WorkloadError(f"{wrong}: {APART}") from wrong
