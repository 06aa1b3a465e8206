"""What single codecs promise beyond the kit: bits, scales, positions, directions, and fields that can't be."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from minga.base.config import FieldError
from minga.base.spec import parse
from minga.codecs import Codec, Int8, PowerSGD, RandomK, Sign, Stream, TopK
from minga.testing.codecs import assert_right_in_the_mean


def arrives(codec: Codec, vector: Tensor, stream: Stream | None = None) -> Tensor:
    decoded, stream = torch.empty_like(vector), stream or Stream.of(vector)
    codec.decode(codec.encode(vector, stream), decoded, stream)
    return decoded


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("int8:block=0", "block: should be a multiple of 8, such as 8, not 0"),
        ("sign:block=100", "block: should be a multiple of 8, such as 96, not 100"),
        ("int8:rounding=up", "rounding: .*'stochastic' or 'nearest'"),
        ("top_k:ratio=0", "ratio: should be above 0 and at most 1, not 0"),
        ("random_k:ratio=1.5", "ratio: should be above 0 and at most 1, not 1.5"),
        ("top_k:feedback=false,momentum_correction=true", "momentum_correction: .* needs feedback=true"),
        ("power_sgd:rank=0", "rank: should be at least 1, not 0"),
    ],
)
def test_fields_that_cannot_be(spec: str, reason: str) -> None:
    with pytest.raises(FieldError, match=reason):
        parse(Codec, spec)  # type: ignore[type-abstract]


@pytest.mark.parametrize("size", [1e-44, 1e-39, 1e-20, 1.0, 1e30])
@pytest.mark.parametrize("codec", [Int8(), Sign(), PowerSGD(rank=1)])
def test_tiny_and_huge_values_stay_numbers(codec: Codec, size: float) -> None:
    vector = torch.linspace(-1, 1, 400) * size
    stream = Stream.of(vector, [(20, 20)])
    for _ in range(3):
        decoded = arrives(codec, vector, stream)
        assert torch.isfinite(decoded).all()
        assert decoded.abs().max() <= 3 * size


@dataclass(frozen=True, kw_only=True)
class RoundsUpTooOften(Int8):
    """Int8 whose rounding is off by a twentieth of a step."""

    def pack(self, rows: Tensor, scales: Tensor, packed: Tensor, generator: torch.Generator) -> None:
        super().pack(rows + rows.abs().max() / 127 / 20, scales, packed, generator)


@pytest.mark.parametrize("codec", [RoundsUpTooOften(), Int8(rounding="nearest")])
def test_a_rounding_that_is_not_right_in_the_mean_is_found(codec: Codec) -> None:
    with pytest.raises(AssertionError):
        assert_right_in_the_mean(codec)


def test_8_bits_err_by_a_step_at_most_and_to_nearest_by_half_a_step() -> None:
    vector = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    steps = torch.stack([block.abs().max() / 127 for block in vector.split(1024)])  # type: ignore[no-untyped-call]
    step = steps.repeat_interleave(1024)[:5000]
    assert bool(((arrives(Int8(), vector) - vector).abs() <= 1.001 * step).all())
    assert bool(((arrives(Int8(rounding="nearest"), vector) - vector).abs() <= 0.501 * step).all())


def test_ranks_and_vectors_are_rounded_differently() -> None:
    vector = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    first, other = Stream.of(vector, rank=0), Stream.of(vector, rank=1)
    rounded = [arrives(Int8(), vector, stream) for stream in (first, other, first)]
    assert not torch.equal(rounded[0], rounded[1])
    assert not torch.equal(rounded[0], rounded[2])


@pytest.mark.parametrize("length", [1, 7, 8, 9, 1030])
def test_signs_come_back_with_the_mean_size_of_their_block(length: int) -> None:
    vector = torch.randn(length, generator=torch.Generator().manual_seed(1))
    decoded = arrives(Sign(), vector)
    assert torch.equal(decoded.sign(), vector.sign())
    torch.testing.assert_close(decoded[:1024].abs(), vector[:1024].abs().mean().expand(min(length, 1024)))


@pytest.mark.parametrize(
    ("ratio", "length", "sent"), [(0.07, 100, 7), (0.1, 15, 2), (0.01, 66, 1), (1, 9, 9), (0.5, 0, 0)]
)
def test_just_as_many_values_as_the_share_says_are_sent(ratio: float, length: int, sent: int) -> None:
    vector = torch.arange(1.0, length + 1)
    for codec in (TopK(ratio=ratio), RandomK(ratio=ratio)):
        assert int(arrives(codec, vector).count_nonzero()) == sent
    assert TopK(ratio=ratio).encoded_bytes(vector, Stream.of(vector)) == 8 * sent, "a value and its position"


def test_the_largest_arrive_as_they_are() -> None:
    vector = torch.tensor([0.5, -3.0, 0.1, 2.0, -0.2, 1.0], dtype=torch.float64)
    assert arrives(TopK(ratio=0.5), vector).tolist() == [0, -3, 0, 2, 0, 1]


@pytest.mark.parametrize("length", [1, 2, 60, 97])
def test_random_positions_are_equally_likely_and_never_twice(length: int) -> None:
    codec, vector = RandomK(ratio=0.1), torch.ones(length)
    times, seen = 4000, torch.zeros(length)
    for count in range(times):
        stream = Stream(((length,),), seed=2, count=count)
        decoded = arrives(codec, vector, stream)
        assert decoded.sum() == codec.values_in(length)
        seen += decoded
    share = codec.values_in(length) / length
    deviation = (times * share * (1 - share)) ** 0.5
    assert (seen - times * share).abs().max() <= 4.5 * deviation


def test_a_matrix_of_low_rank_arrives_whole() -> None:
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(20, 2, generator=generator), torch.randn(2, 30, generator=generator)
    vector = (left @ right).view(-1)
    stream = Stream.of(vector, [(20, 30)])
    torch.testing.assert_close(arrives(PowerSGD(rank=2), vector, stream), vector)


def test_directions_get_better_with_each_vector() -> None:
    generator = torch.Generator().manual_seed(0)
    left, _ = torch.linalg.qr(torch.randn(20, 20, generator=generator))
    right, _ = torch.linalg.qr(torch.randn(20, 20, generator=generator))
    sizes = 0.9 ** torch.arange(20)
    matrix = left @ torch.diag(sizes) @ right
    best = float(sizes[2:].norm())
    codec, stream = PowerSGD(rank=2, feedback=False), Stream(((20, 20),))
    errors = [float((arrives(codec, matrix.view(-1), stream) - matrix.view(-1)).norm()) for _ in range(60)]
    assert errors[0] > 1.05 * best
    assert errors[-1] == pytest.approx(best, rel=1e-3)


def test_small_layers_and_those_of_one_dimension_travel_as_they_are() -> None:
    vector = torch.randn(10 + 3 * 3 + 12 * 12, generator=torch.Generator().manual_seed(0))
    stream = Stream.of(vector, [(10,), (3, 3), (12, 12)])
    codec = PowerSGD(rank=2)
    assert codec.encoded_bytes(vector, stream) == 4 * (10 + 9 + 2 * (12 + 12))
    assert torch.equal(arrives(codec, vector, stream)[:19], vector[:19])
