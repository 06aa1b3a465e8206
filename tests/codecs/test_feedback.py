"""Error feedback: what a codec always leaves out is never learnt without it. Quadratics on which that happens."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from minga.codecs import BiasedCodec, PowerSGD, RandomK, Sign, Stream, TopK
from minga.comm import all_reduce_mean
from minga.comm.threads import run_threads
from minga.comm.transport import Transport

ROWS, COLUMNS = 6, 8
Noise = Callable[[int, int], Tensor]
"""What a rank's gradient has in a step besides the mean's; over ranks and steps it is zero in the mean."""


def goal() -> Tensor:
    target = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    target[0] = target[:, 0] = 0
    return target.view(-1)


def distance_after(steps: int, codec: BiasedCodec, noise: Noise, rate: float) -> float:
    """How far from the minimum of |x - goal|^2 / 2 two ranks get, relative to where they start."""
    target = goal()

    def body(comm: Transport) -> Tensor:
        position = torch.zeros_like(target)
        stream = Stream(((ROWS, COLUMNS),), rank=comm.rank)
        for step in range(steps):
            gradient = position - target + noise(comm.rank, step)
            all_reduce_mean(comm, gradient, codec=codec, stream=stream)
            position -= rate * gradient
        return position

    first, second = run_threads(2, body)
    assert torch.equal(first, second)
    return float((first - target).norm() / target.norm())


def large_where_nothing_is_to_learn(rank: int, step: int) -> Tensor:
    """Two ranks disagree about a few values by far more than there is to learn elsewhere."""
    noise = torch.zeros(ROWS, COLUMNS, dtype=torch.float64)
    noise[0] = 20 * (1 - 2 * rank)
    return noise.view(-1)


def always_against_each_other(rank: int, step: int) -> Tensor:
    """Every sign is decided by a disagreement of the ranks."""
    signs = torch.ones(ROWS * COLUMNS, dtype=torch.float64)
    signs[::2] = -1
    return 20 * (1 - 2 * rank) * signs


def the_same_direction_to_and_fro(rank: int, step: int) -> Tensor:
    """A matrix of rank one, larger than what is to learn and outside of it, that changes its sign with each step."""
    noise = torch.zeros(ROWS, COLUMNS, dtype=torch.float64)
    noise[0, 0] = 50 * (-1) ** step
    return noise.view(-1)


@pytest.mark.parametrize(
    ("codec", "noise"),
    [
        (TopK(ratio=0.1), large_where_nothing_is_to_learn),
        (Sign(), always_against_each_other),
        (PowerSGD(rank=1), the_same_direction_to_and_fro),
    ],
    ids=["top_k", "sign", "power_sgd"],
)
def test_with_feedback_it_converges_where_it_does_not_without(codec: BiasedCodec, noise: Noise) -> None:
    with_feedback = distance_after(1500, codec, noise, rate=0.003)
    without = distance_after(1500, dataclasses.replace(codec, feedback=False), noise, rate=0.003)
    assert with_feedback < 0.05
    assert without > 0.9


def test_random_values_are_right_in_the_mean_without_feedback_too() -> None:
    for feedback in (True, False):
        codec = RandomK(ratio=0.2, feedback=feedback)
        assert distance_after(1500, codec, lambda rank, step: torch.zeros(ROWS * COLUMNS), rate=0.01) < 0.01


@dataclass(frozen=True, kw_only=True)
class WholeNumbers(BiasedCodec):
    """As codecs begin: it says how it rounds, and leaves feedback to what it inherits."""

    def compress(self, vector: Tensor, stream: Stream) -> Tensor:
        return vector.round().to(torch.int16)

    def decompress(self, encoded: Tensor, into: Tensor, stream: Stream) -> None:
        into.copy_(encoded)

    def encoded_like(self, vector: Tensor, stream: Stream) -> Tensor:
        return torch.empty(len(vector), dtype=torch.int16)


def test_what_a_codec_of_ones_own_leaves_out_is_owed() -> None:
    codec, stream = WholeNumbers(), Stream(((1,),))
    vector, space = torch.tensor([0.375], dtype=torch.float64), torch.empty(1, dtype=torch.float64)
    arrived = []
    for _ in range(8):
        codec.decode(codec.encode(vector, stream), space, stream)
        arrived.append(float(space))
    assert sum(arrived) == 8 * 0.375
    assert set(arrived) == {0.0, 1.0}
