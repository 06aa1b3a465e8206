"""The form of vectors on the wire."""

from __future__ import annotations

import math

import pytest
import torch

from minga import Cluster, Experiment, Training
from minga.codecs import CODECS, BFloat16, Codec, Half, Plain, Stream
from minga.comm import all_reduce_mean
from minga.comm.threads import run_threads
from minga.comm.transport import Transport
from minga.testing import train_in_threads
from minga.testing.problems import blobs


@pytest.mark.parametrize(("codec", "precision"), [(Plain(), 0.0), (Half(), 2**-11), (BFloat16(), 2**-8)])
def test_what_is_decoded_is_what_was_encoded_to_the_codecs_precision(codec: Codec, precision: float) -> None:
    vector = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    stream = Stream.of(vector)
    encoded, decoded = codec.encode(vector, stream), torch.empty_like(vector)
    space = codec.encoded_like(vector, stream)
    assert (encoded.shape, encoded.dtype) == (space.shape, space.dtype)
    codec.decode(encoded, decoded, stream)
    assert bool(((decoded - vector).abs() <= precision * vector.abs()).all())


def test_sums_of_16_bit_floats_do_not_overflow() -> None:
    def body(comm: Transport) -> float:
        vector = torch.full((4,), 60_000.0)
        all_reduce_mean(comm, vector, codec=Half())
        return float(vector[0])

    assert run_threads(4, body) == [pytest.approx(60_000, rel=1e-3)] * 4


# A hundredth of 66 parameters would be a single one; what random_k leaves out on the way to a server and back again is
# late by steps, which momentum does not forgive.
FEW_PARAMETERS = {"top_k": "top_k:ratio=0.1", "random_k": "random_k:ratio=0.5"}


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("strategy", ["ring", "native", "ps:mode=sync,servers=2", "ps:mode=async", "switch:at=5"])
def test_every_codec_works_with_every_strategy(name: str, strategy: str) -> None:
    spec = f"{strategy}{',' if ':' in strategy else ':'}codec={FEW_PARAMETERS.get(name, name)}"
    experiment = Experiment(workload="blobs", strategy=spec, cluster=Cluster(nodes=3), training=Training(steps=40))
    replicas = train_in_threads(experiment, blobs())[:3]
    assert all(torch.equal(replica.parameters, replicas[0].parameters) for replica in replicas)
    inputs, targets = blobs().train[:]
    with torch.no_grad():
        assert float(torch.nn.functional.cross_entropy(replicas[0].model(inputs), targets)) < 0.6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("shape", [(1,), (7, 9), (301,)])
def test_models_of_16_bits_can_be_encoded_too(name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    codec = Codec.from_value(FEW_PARAMETERS.get(name, name))
    vector = torch.linspace(-1, 1, math.prod(shape)).to(dtype)
    stream = Stream.of(vector, [shape])
    decoded = torch.empty_like(vector)
    codec.decode(codec.encode(vector, stream), decoded, stream)
    assert bool(torch.isfinite(decoded).all())
    assert float((decoded - vector).norm()) <= 1.05 * float(vector.norm())


@pytest.mark.parametrize("name", ["top_k:ratio=0.1", "sign", "int8:feedback=true", "power_sgd:rank=1,factors=int8"])
def test_what_was_sent_in_a_step_that_nobody_used_is_owed_again(name: str) -> None:
    """One rank has numbers that are none: the others' vectors have not arrived either."""
    codec = Codec.from_value(name)

    def body(comm: Transport) -> tuple[torch.Tensor, torch.Tensor]:
        stream, arrived = Stream.of(torch.empty(63), [(7, 9)], rank=comm.rank), torch.zeros(63, dtype=torch.float64)
        own = torch.zeros(63, dtype=torch.float64)
        generator = torch.Generator().manual_seed(comm.rank)
        for step in range(6):
            vector = torch.randn(63, generator=generator)
            own += vector
            bad = step == 3 and comm.rank == 1
            used = stream.aside() if bad else stream
            mean = vector.fill_(math.nan) if bad else vector.clone()
            all_reduce_mean(comm, mean, codec=codec, stream=used)
            if bad:
                stream.skip(used)
            if bool(torch.isfinite(mean).all()):
                arrived += mean
        assert stream.residual is not None
        return arrived, own - stream.residual

    # What the good ranks have given in all, less what they still owe, is what arrived; the bad one's step is lost.
    (arrived, first), (_, second) = run_threads(2, body)
    generator = torch.Generator().manual_seed(1)
    lost = [torch.randn(63, generator=generator) for _ in range(4)][3]
    assert torch.allclose(2 * arrived, first + second - lost, atol=1e-4)
