"""What a model has besides trainable parameters: BatchNorm statistics, counters, frozen weights.

Ranks see different samples, so their statistics drift apart; they agree at evaluation and at the end.

    statistics = BatchNormStatistics(model); statistics.keep()
    loss_of(model, batch).backward()
    statistics.restore_if_non_finite()

What BatchNorm layers learn of their inputs by going forward, without gradients, are averages over all steps: a NaN
would stay in them for ever, though its step is left out; and a step that was broken off in the middle, and is made
again, would count twice.
"""

from __future__ import annotations

from collections import defaultdict

from minga.base.lazy import Tensor, nn, torch
from minga.comm import Transport, broadcast
from minga.comm.collectives import tree
from minga.model.keras_parts import is_seed, statistics
from minga.model.non_finite import all_finite

__all__ = ["BatchNormStatistics", "agree_on_buffers", "take_buffers", "take_statistics"]


class BatchNormStatistics:
    """Those of a model's BatchNorm layers, torch's and Keras', and what they were before the step under way."""

    def __init__(self, model: nn.Module) -> None:
        self._norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        self._of_keras = statistics(model)
        self._kept: list[Tensor] = []

    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Mean and variance of each layer."""
        pairs = [(norm.running_mean, norm.running_var) for norm in self._norms]
        return [(mean, var) for mean, var in pairs if mean is not None and var is not None] + self._of_keras

    def floats(self) -> list[Tensor]:
        return [each for pair in self.pairs() for each in pair]

    def tensors(self) -> list[Tensor]:
        """All of them, also how many batches a layer has seen, where it counts them."""
        counters = [norm.num_batches_tracked for norm in self._norms]
        return self.floats() + [counter for counter in counters if counter is not None]

    def keep(self) -> None:
        """Before a step's forward pass."""
        self._kept = [tensor.clone() for tensor in self.tensors()]

    def restore_if_non_finite(self) -> None:
        """After it: where they are no longer numbers, this step has never been.

        All layers go back, as they do on all ranks that have normalised together and have the same numbers.
        """
        floats = self.floats()
        if floats and not all_finite(torch.cat(floats)):
            self.put_back()

    def put_back(self) -> None:
        """As they were kept, if they were."""
        for tensor, kept in zip(self.tensors(), self._kept, strict=False):
            tensor.copy_(kept)


def take_buffers(model: nn.Module, comm: Transport) -> None:
    """Everybody takes rank 0's buffers and frozen weights."""
    if comm.size > 1:
        _take(_untrained(model), comm)


def take_statistics(model: nn.Module, comm: Transport, *, root: int) -> None:
    """Everybody takes what BatchNorm layers of rank `root` know, and nothing else: frozen weights may be large."""
    _take(BatchNormStatistics(model).tensors(), comm, root)


def _take(tensors: list[Tensor], comm: Transport, root: int = 0) -> None:
    """One message for each type of number, however many tensors there are."""
    by_type: dict[torch.dtype, list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        by_type[tensor.dtype].append(tensor)
    for dtype, alike in by_type.items():
        wire = torch.cat([tensor.detach().reshape(-1) for tensor in alike])
        wire = wire.to(torch.uint8) if dtype == torch.bool else wire
        broadcast(comm, wire, root)
        if comm.rank != root:
            parts = torch.split(wire, [tensor.numel() for tensor in alike])
            for tensor, part in zip(alike, parts, strict=True):
                tensor.data = part.view(tensor.shape).to(dtype).clone()


def agree_on_buffers(model: nn.Module, comm: Transport) -> None:
    """Floats become their mean over all ranks, counters their maximum, tables of integers those of rank 0;
    the variances of BatchNorm are pooled."""
    if comm.size == 1:
        return
    floats = [tensor for tensor in _untrained(model) if tensor.is_floating_point()]
    norms = BatchNormStatistics(model).pairs()
    # The variance over all ranks' samples is the mean of the variances plus the variance of the means.
    squares = [mean.square() for mean, _ in norms]
    averaged = _mean_over_ranks([*floats, *squares], comm)
    for tensor, mean in zip(floats, averaged, strict=False):
        tensor.detach().copy_(mean)
    for (mean, variance), square in zip(norms, averaged[len(floats) :], strict=True):
        variance.add_((square - mean.square()).clamp_(min=0))
    others = [tensor for tensor in _untrained(model) if not tensor.is_floating_point()]
    counters = [tensor for tensor in others if tensor.numel() == 1]
    for counter, value in zip(counters, _largest([float(counter) for counter in counters], comm), strict=True):
        counter.detach().fill_(value)
    _take([tensor for tensor in others if tensor.numel() != 1], comm)


def _untrained(model: nn.Module) -> list[Tensor]:
    # Seeds are each rank's own: with the same ones, all would drop the same units.
    frozen = [tensor for name, tensor in model.named_parameters() if not tensor.requires_grad and not is_seed(name)]
    return [*frozen, *model.buffers()]


def _mean_over_ranks(tensors: list[Tensor], comm: Transport) -> list[Tensor]:
    """Means in float64, as rank 0's value plus the mean difference to it: what is equal everywhere stays as it is."""
    if not tensors:
        return []
    own = torch.cat([tensor.detach().double().reshape(-1).cpu() for tensor in tensors])
    reference = own.clone()
    broadcast(comm, reference)
    # Also right where both are infinite, as in attention masks.
    difference = torch.where(own == reference, 0.0, own - reference)
    tree(comm, difference)
    mean = reference + difference / comm.size
    parts = torch.split(mean, [tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape).to(tensor.device) for part, tensor in zip(parts, tensors, strict=True)]


def _largest(values: list[float], comm: Transport) -> list[float]:
    """The maximum of each over ranks, from sums alone: each rank puts its values into its own row."""
    table = torch.zeros(comm.size, len(values), dtype=torch.float64)
    table[comm.rank] = torch.tensor(values, dtype=torch.float64)
    tree(comm, table.view(-1))
    return [float(value) for value in table.amax(dim=0)] if values else []
