"""Exchanging deltas: nothing is lost, nothing counts twice, however late the mean arrives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from minga.codecs import Codec, Int8, Plain, PowerSGD, Stream, TopK
from minga.comm.collectives import ring
from minga.comm.threads import run_threads
from minga.comm.transport import Transport
from minga.model.replica import Replica
from minga.strategies.delta import Delta

SHAPES = ((20, 30), (30,))
LENGTH = 630


def noise(rank: int, number: int) -> Tensor:
    return torch.randn(LENGTH, generator=torch.Generator().manual_seed(100 * rank + number), dtype=torch.float64)


def blank() -> Replica:
    """Of zeros."""
    model = nn.ParameterList([nn.Parameter(torch.zeros(LENGTH, dtype=torch.float64))])
    return Replica(model, torch.optim.SGD(model.parameters(), lr=1.0))


def wander(comm: Transport, codec: Codec, *, beside: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Five exchanges with steps between them and, if wanted, beside them: parameters, anchor, all own steps."""
    replica = blank()
    parameters = replica.parameters
    delta = Delta.of(replica, slice(None), Stream(SHAPES, rank=comm.rank), comm.size)
    own = torch.zeros_like(parameters)
    for number in range(10):
        step = noise(comm.rank, number)
        parameters += step
        own += step
        if number % 2 == 0:
            delta.begin(replica, comm, ring, codec)
            if not beside:
                delta.complete(replica)
        else:
            delta.complete(replica)
    assert not torch.equal(parameters, delta.anchor)
    delta.settle(replica, comm, ring, codec)
    return parameters, delta.anchor, own


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("codec", [Plain(), PowerSGD(rank=2), TopK(ratio=0.1)])
def test_everything_that_replicas_learn_arrives_once(codec: Codec, ranks: int, beside: bool) -> None:
    results = run_threads(ranks, lambda comm: wander(comm, codec, beside=beside))
    expected = torch.stack([own for _, _, own in results]).mean(0)
    for parameters, anchor, _ in results:
        assert torch.equal(parameters, anchor)
        assert torch.equal(parameters, results[0][0])
        # A codec that leaves something out sends the rest at the end, in 8 bits: within 1/254 of the largest value.
        torch.testing.assert_close(parameters, expected, rtol=0, atol=1e-12 if isinstance(codec, Plain) else 0.05)


def test_without_its_residual_something_is_missing() -> None:
    """The control: a codec that forgets what it leaves out does not pass the test above."""
    results = run_threads(2, lambda comm: wander(comm, TopK(ratio=0.1, feedback=False), beside=True))
    expected = torch.stack([own for _, _, own in results]).mean(0)
    assert (results[0][0] - expected).abs().max() > 0.5


def test_what_was_learnt_meanwhile_stays() -> None:
    def body(comm: Transport) -> tuple[Tensor, Tensor]:
        replica = blank()
        parameters = replica.parameters
        delta = Delta.of(replica, slice(None), Stream(SHAPES), comm.size)
        parameters += noise(comm.rank, 0)
        delta.begin(replica, comm, ring, Plain())
        parameters += noise(comm.rank, 1)
        delta.complete(replica)
        return parameters, delta.anchor

    for rank, (parameters, anchor) in enumerate(run_threads(2, body)):
        torch.testing.assert_close(anchor, (noise(0, 0) + noise(1, 0)) / 2, rtol=0, atol=1e-12)
        torch.testing.assert_close(parameters, anchor + noise(rank, 1), rtol=0, atol=1e-12)


def test_a_replica_has_its_own_part_of_what_is_still_to_come() -> None:
    def body(comm: Transport) -> tuple[Tensor, Tensor, Tensor]:
        replica = blank()
        parameters = replica.parameters
        delta = Delta.of(replica, slice(None), Stream(SHAPES), comm.size)
        parameters += noise(comm.rank, 0)
        delta.average(replica, comm, ring, TopK(ratio=0.1))
        assert delta.stream.residual is not None
        return parameters, delta.anchor, delta.stream.residual

    results = run_threads(2, body)
    for parameters, anchor, residual in results:
        torch.testing.assert_close(parameters, anchor + 0.75 * residual, rtol=0, atol=1e-12)
    # All parts together are what the mean of everything would have been.
    whole = results[0][1] + sum(residual / 2 for _, _, residual in results)
    torch.testing.assert_close(whole, (noise(0, 0) + noise(1, 0)) / 2, rtol=0, atol=1e-12)


def test_another_codec_takes_over_what_the_last_one_left_out() -> None:
    def body(comm: Transport) -> Tensor:
        replica = blank()
        parameters = replica.parameters
        delta = Delta.of(replica, slice(None), Stream(SHAPES), comm.size)
        streams = [Stream(SHAPES) for _ in range(3)]
        for codec, stream in zip([TopK(ratio=0.01), PowerSGD(rank=1), Int8()], streams, strict=True):
            parameters += noise(comm.rank, 0)
            delta.prepare(replica, comm, ring, codec, stream)(comm)
            delta.complete(replica)
        assert all(stream.residual is None for stream in streams), "8 bits leave nothing out"
        return delta.anchor

    expected = 3 * (noise(0, 0) + noise(1, 0)) / 2
    for anchor in run_threads(2, body):
        torch.testing.assert_close(anchor, expected, rtol=0, atol=0.2)


@pytest.mark.parametrize("codec", [Plain(), Int8(), Int8(rounding="nearest", feedback=True), TopK(ratio=0.1)])
def test_the_first_exchange_may_be_the_last(codec: Codec) -> None:
    """A training that is shorter than a period: nothing may be owed at its end."""

    def settle_at_once(comm: Transport) -> Tensor:
        replica = blank()
        parameters = replica.parameters
        delta = Delta.of(replica, slice(None), Stream(SHAPES, rank=comm.rank), comm.size)
        parameters += noise(comm.rank, 0)
        delta.settle(replica, comm, ring, codec)
        return parameters

    first, second = run_threads(2, settle_at_once)
    assert torch.equal(first, second)
