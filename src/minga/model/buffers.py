"""What a model has besides trainable parameters: BatchNorm statistics, counters, frozen weights.

Ranks see different samples, so their statistics drift apart; they agree at evaluation and at the end.
"""

from __future__ import annotations

from collections import defaultdict

from minga.base.lazy import Tensor, nn, torch
from minga.comm import Transport, broadcast
from minga.comm.collectives import tree
from minga.model.keras_parts import is_seed
from minga.model.sync_batch_norm.statistics import counters_of, statistics_of

__all__ = ["agree_on_buffers", "take_buffers", "take_statistics"]


def take_buffers(model: nn.Module, comm: Transport, *, root: int = 0) -> None:
    """Everybody takes rank `root`'s buffers and frozen weights."""
    if comm.size > 1:
        _take(_untrained(model), comm, root)


def take_statistics(model: nn.Module, comm: Transport, *, root: int) -> None:
    """Everybody takes what BatchNorm layers of rank `root` know, and nothing else: frozen weights may be large."""
    pairs = statistics_of(model)
    _take([*(each for pair in pairs for each in pair), *counters_of(model)], comm, root)


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
    norms = statistics_of(model)
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
