from __future__ import annotations

import torch
from torch import nn

from minga.comm.threads import run_threads
from minga.comm.transport import Transport
from minga.model.buffers import agree_on_buffers, take_buffers


def test_batch_norm_statistics_become_those_of_all_samples() -> None:
    """With momentum None, BatchNorm keeps plain averages, so the pooled ones can be computed directly."""
    samples = torch.randn(3, 64, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    samples += torch.arange(3).view(3, 1, 1) * 2  # ranks see different data

    def body(comm: Transport) -> nn.BatchNorm1d:
        norm = nn.BatchNorm1d(5, momentum=None).double()
        norm(samples[comm.rank])
        norm.num_batches_tracked.add_(comm.rank)
        agree_on_buffers(norm, comm)
        return norm

    norms = run_threads(3, body)
    everything = samples.reshape(-1, 5)
    for norm in norms:
        assert norm.running_mean is not None and norm.running_var is not None
        torch.testing.assert_close(norm.running_mean, everything.mean(0))
        # Each rank divides by 63, not 64; the means' own spread is exact.
        pooled = samples.var(1).mean(0) + samples.mean(1).var(0, correction=0)
        torch.testing.assert_close(norm.running_var, pooled)
        assert torch.equal(norm.running_var, norms[0].running_var)
        assert int(norm.num_batches_tracked) == 3


def test_what_is_equal_everywhere_stays_as_it_is_to_the_bit() -> None:
    value = torch.tensor([0.1, 1e-30, 3.0])

    def body(comm: Transport) -> torch.Tensor:
        model = nn.Module()
        model.register_buffer("table", value.clone())
        model.register_parameter("frozen", nn.Parameter(value.clone(), requires_grad=False))
        for _ in range(3):
            agree_on_buffers(model, comm)
        return torch.cat([model.table, model.frozen.detach()])  # type: ignore[list-item, union-attr]

    for result in run_threads(3, body):
        assert torch.equal(result, torch.cat([value, value]))


def test_everybody_starts_from_the_first_ranks_buffers_of_any_type() -> None:
    def body(comm: Transport) -> list[object]:
        model = nn.Module()
        model.register_buffer("floats", torch.full((2, 2), float(comm.rank)))
        model.register_buffer("count", torch.tensor(comm.rank))
        model.register_buffer("mask", torch.tensor([comm.rank == 0, False]))
        take_buffers(model, comm)
        return [buffer.tolist() for buffer in model.buffers()]

    assert run_threads(3, body) == [[[[0.0, 0.0], [0.0, 0.0]], 0, [True, False]]] * 3
