"""What every codec must do, and what those must do that promise to be right in the mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from minga.base.config import fields_of
from minga.base.spec import describe, parse
from minga.codecs import Codec, Stream
from minga.codecs.reference_copy import ReferenceCopy
from minga.comm import all_reduce_mean
from minga.comm.collectives import ring
from minga.comm.threads import run_threads
from minga.comm.traced import TracedTransport
from minga.comm.transport import Transport
from minga.measure.traffic import Traffic

__all__ = ["CodecConformance", "FeedbackCodecConformance", "UnbiasedCodecConformance", "assert_right_in_the_mean"]

SHAPES = ((7,), (30, 40), (3,), (16, 3, 3, 3), (1, 5))
LENGTH = sum(math.prod(shape) for shape in SHAPES)
EITHER_PRECISION = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


class CodecConformance:
    """Inherit it, and make the codec in `make`."""

    exact: ClassVar[bool] = False
    """Whether what it sends and what it keeps add up to the last bit, because nothing is rounded."""

    def make(self) -> Codec:
        raise NotImplementedError("return the codec to test")

    # The health check is about inherited tests, which is what a kit is made of.
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    @given(
        shapes=st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=3), max_size=4),
        double=st.booleans(),
        seed=st.integers(0, 1000),
    )
    def test_any_layers(self, shapes: list[list[int]], double: bool, seed: int) -> None:
        length = sum(math.prod(shape) for shape in shapes)
        vector = _random(length, torch.float64 if double else torch.float32, seed)
        self._check_one(vector, shapes)

    @EITHER_PRECISION
    @pytest.mark.parametrize("length", [0, 1, 2, 7, 8, 9, 1023, 1024, 1025, 2049, 300_001])
    def test_any_length(self, length: int, dtype: torch.dtype) -> None:
        self._check_one(_random(length, dtype), [[length]])

    def _check_one(self, vector: Tensor, shapes: Sequence[Sequence[int]]) -> None:
        codec, stream, before = self.make(), Stream.of(vector, shapes, seed=3), vector.clone()
        for encode in (codec.encode, codec.encode_once):
            encoded, space = encode(vector, stream), codec.encoded_like(vector, stream)
            assert (encoded.shape, encoded.dtype) == (space.shape, space.dtype)
            assert encoded.dim() == 1
            assert encoded.nbytes == codec.encoded_bytes(vector, stream)
            decoded = torch.full_like(vector, math.nan)
            codec.decode(encoded, decoded, stream)
            assert torch.isfinite(decoded).all()
            assert torch.equal(vector, before), "encoding changed the vector"

    @EITHER_PRECISION
    def test_zeros_stay_zeros(self, dtype: torch.dtype) -> None:
        codec, vector = self.make(), torch.zeros(LENGTH, dtype=dtype)
        stream = Stream.of(vector, SHAPES)
        for _ in range(3):
            assert torch.equal(_sent(codec, vector, stream), vector)
        if codec.linear:
            for result in self._mean([vector] * 3, [Stream.of(vector, SHAPES) for _ in range(3)]):
                assert torch.equal(result, vector)

    def test_whoever_decodes_needs_only_the_shapes(self) -> None:
        codec, vector = self.make(), _random(LENGTH, torch.float64)
        encoded = codec.encode(vector, Stream.of(vector, SHAPES, seed=1, rank=1))
        known, stranger = torch.empty_like(vector), torch.empty_like(vector)
        codec.decode(encoded, known, Stream.of(vector, SHAPES, seed=1, rank=1))
        codec.decode(encoded, stranger, Stream.of(vector, SHAPES, seed=2, rank=5))
        assert torch.equal(known, stranger)

    def test_the_same_stream_gives_the_same_bytes(self) -> None:
        first, again = ([encoded.tolist() for encoded in self._encode_several()] for _ in range(2))
        assert first == again

    def _encode_several(self) -> list[Tensor]:
        codec, stream = self.make(), Stream(SHAPES, seed=4, rank=2)
        return [codec.encode(_random(LENGTH, torch.float32, seed), stream).clone() for seed in range(4)]

    @EITHER_PRECISION
    def test_bytes_on_the_wire_from_rank_to_rank(self, dtype: torch.dtype) -> None:
        codec = self.make()

        def body(comm: Transport) -> tuple[int, Tensor]:
            traffic = Traffic()
            counted, vector = TracedTransport(comm, traffic), _random(LENGTH, dtype)
            stream = Stream.of(vector, SHAPES, seed=9, rank=comm.rank)
            if comm.rank == 0:
                counted.send(codec.encode(vector, stream), 1)
            else:
                landing = codec.encoded_like(vector, stream)
                counted.receive(landing, 0)
                codec.decode(landing, vector, stream)
            return traffic.bytes, vector

        (sent, vector), (_, received) = run_threads(2, body)
        assert sent == codec.encoded_bytes(vector, Stream.of(vector, SHAPES))
        assert torch.equal(received, _sent(codec, vector, Stream.of(vector, SHAPES, seed=9)))

    @pytest.mark.parametrize("ranks", [2, 3, 5])
    def test_all_ranks_have_the_same_bits_and_send_what_is_promised(self, ranks: int) -> None:
        codec = self.make()
        vectors = [_random(LENGTH, torch.float32, rank) for rank in range(ranks)]
        streams = [Stream.of(vector, SHAPES, seed=5, rank=rank) for rank, vector in enumerate(vectors)]
        traffic = [Traffic() for _ in vectors]
        for _ in range(2):
            results = self._mean(vectors, streams, traffic)
            assert all(torch.equal(result, results[0]) for result in results)
        total = sum(one.bytes for one in traffic) / 2
        if codec.linear:
            # In a ring every rank passes on all but two of its 2 n pieces.
            assert total == 2 * (ranks - 1) * sum(part.nbytes for part in codec.summed_like(vectors[0], streams[0]))
        else:
            assert total == ranks * (ranks - 1) * codec.encoded_bytes(vectors[0], streams[0])

    def _mean(self, vectors: list[Tensor], streams: list[Stream], traffic: list[Traffic] | None = None) -> list[Tensor]:
        codec, counted = self.make(), traffic or [Traffic() for _ in vectors]

        def body(comm: Transport) -> Tensor:
            mine = vectors[comm.rank].clone()
            all_reduce_mean(TracedTransport(comm, counted[comm.rank]), mine, ring, codec, streams[comm.rank])
            return mine

        return run_threads(len(vectors), body)

    def test_differences_arrive_in_the_end(self) -> None:
        codec, vector = self.make(), _random(LENGTH, torch.float64)
        sender = ReferenceCopy(torch.zeros_like(vector), codec, Stream(SHAPES, seed=7))
        receiver = ReferenceCopy(torch.zeros_like(vector), codec, Stream(SHAPES, seed=8))
        for _ in range(200):
            receiver.apply(sender.encode(vector))
        assert torch.equal(sender.known, receiver.known)
        assert (vector - receiver.known).norm() < 0.05 * vector.norm()

    def test_a_faithful_one_is_close_at_once(self) -> None:
        codec, vector = self.make(), _random(LENGTH, torch.float64)
        distance = (_sent(codec, vector, Stream(SHAPES)) - vector).norm() / vector.norm()
        assert (distance < 0.02) == codec.faithful

    def test_it_can_be_written_and_read_as_a_string(self) -> None:
        spec = describe(self.make())
        assert describe(parse(Codec, spec)) == spec  # type: ignore[type-abstract]

    def test_it_and_its_fields_are_documented(self) -> None:
        cls = type(self.make())
        assert cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}("), "say what it does, and the paper"
        undocumented = [name for name, _, _, about in fields_of(cls) if not about]
        assert not undocumented, f"a line under each field, please: {undocumented}"


class FeedbackCodecConformance(CodecConformance):
    """For codecs with error feedback: nothing is lost."""

    def test_what_is_not_sent_is_owed(self) -> None:
        codec, stream = self.make(), Stream(SHAPES, seed=6)
        total, arrived = torch.zeros(2, LENGTH, dtype=torch.float64)
        for seed in range(50):
            vector = self._summable(seed)
            total += vector
            arrived += _sent(codec, vector, stream)
        assert stream.residual is not None
        assert stream.count == 50
        self._assert_same(arrived + stream.residual, total)

    def test_what_is_not_sent_is_owed_by_each_rank(self) -> None:
        streams = [Stream(SHAPES, seed=6, rank=rank) for rank in range(4)]
        total, arrived = torch.zeros(2, LENGTH, dtype=torch.float64)
        for turn in range(10):
            vectors = [self._summable(4 * turn + rank) for rank in range(4)]
            total += torch.stack(vectors).sum(0) / 4
            arrived += self._mean(vectors, streams)[0]
        for stream in streams:
            assert stream.residual is not None
            arrived += stream.residual / 4
        self._assert_same(arrived, total)

    def _summable(self, seed: int) -> Tensor:
        """Whole numbers, whose sums have no error, where a codec must be exact."""
        vector = _random(LENGTH, torch.float64, seed)
        return (vector * 1000).round() if self.exact else vector

    def _assert_same(self, found: Tensor, expected: Tensor) -> None:
        tolerance = 0.0 if self.exact else 1e-12
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=50 * tolerance)


class UnbiasedCodecConformance(CodecConformance):
    """For codecs that are right in the mean over many encodings."""

    def test_the_mean_of_many_encodings_is_the_vector(self) -> None:
        assert_right_in_the_mean(self.make())


def assert_right_in_the_mean(codec: Codec, *, times: int = 2000) -> None:
    """Each value's mean over many encodings is within 5 standard errors of it, and all together within chance."""
    vector = _random(300, torch.float64, 11)
    stream = Stream.of(vector, seed=12)
    decoded = torch.stack([_sent(codec, vector, stream, count) for count in range(times)])
    deviation = decoded.std(0)
    varies = deviation > 1e-9 * vector.abs().max()
    # What is sent exactly, or is so near a step of 1/127 that it was never rounded to the next one.
    torch.testing.assert_close(decoded[0][~varies], vector[~varies], rtol=1e-6, atol=float(vector.abs().max()) / 12700)
    errors = (decoded.mean(0) - vector)[varies] / (deviation[varies] / math.sqrt(times))
    assert len(errors) > 0.8 * len(vector), "nothing varies: too little to test"
    assert errors.abs().max() < 5
    assert errors.square().mean() < 1.5


def _random(length: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def _sent(codec: Codec, vector: Tensor, stream: Stream, count: int | None = None) -> Tensor:
    """What arrives of a vector."""
    if count is not None:
        stream.count = count
    decoded = torch.empty_like(vector)
    codec.decode(codec.encode(vector, stream), decoded, stream)
    return decoded
