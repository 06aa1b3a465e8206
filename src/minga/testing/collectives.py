"""What every collective must do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from minga.comm.threads import run_threads
from minga.comm.transport import Transport

__all__ = ["CollectiveConformance"]


class CollectiveConformance:
    """Inherit it, and say in `collective` which function adds a vector up over all ranks."""

    def collective(self) -> Callable[[Transport, Tensor], None]:
        raise NotImplementedError("return a function (comm, vector) that adds up in place")

    def run(self, size: int, function: Callable[[Transport], Any]) -> list[Any]:
        """On which transport; default: threads."""
        return run_threads(size, function)

    def add_up(self, vectors: list[Tensor]) -> list[Tensor]:
        """The result on every rank."""
        function = self.collective()

        def body(comm: Transport) -> Tensor:
            mine = vectors[comm.rank].clone()
            function(comm, mine)
            return mine

        results: list[Tensor] = self.run(len(vectors), body)
        return results

    # The health check is about inherited tests, which is what a kit is made of.
    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    @given(
        ranks=st.integers(1, 9),
        length=st.one_of(st.sampled_from([0, 1, 2, 3, 7, 64]), st.integers(0, 200)),
        dtype=st.sampled_from([torch.float32, torch.float64, torch.int64]),
        seed=st.integers(0, 1000),
    )
    def test_any_number_of_ranks_and_any_length(self, ranks: int, length: int, dtype: torch.dtype, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        vectors = [torch.randn(length, generator=generator, dtype=torch.float64) * 100 for _ in range(ranks)]
        typed = [vector.to(dtype) for vector in vectors]
        expected = torch.stack(typed).sum(0)
        for result in self.add_up(typed):
            torch.testing.assert_close(result, expected, rtol=1e-5 if dtype == torch.float32 else 1e-12, atol=1e-4)

    def test_all_ranks_have_the_same_bits_and_have_them_again(self) -> None:
        for ranks in (2, 3, 5, 7, 8):
            vectors = [torch.randn(1001, generator=torch.Generator().manual_seed(rank)) for rank in range(ranks)]
            first, again = self.add_up(vectors), self.add_up(vectors)
            for result in [*first, *again]:
                assert torch.equal(result, first[0])

    def test_long_vectors_that_travel_in_pieces(self) -> None:
        vectors = [torch.full((3_000_001,), float(rank + 1)) for rank in range(3)]
        for result in self.add_up(vectors):
            assert torch.equal(result, torch.full((3_000_001,), 6.0))

    def test_several_in_a_row_do_not_mix(self) -> None:
        function = self.collective()

        def body(comm: Transport) -> list[float]:
            vectors = [torch.full((17,), float(number * (comm.rank + 1))) for number in range(5)]
            for vector in vectors:
                function(comm, vector)
            return [float(vector[-1]) for vector in vectors]

        for result in self.run(4, body):
            assert result == [0.0, 10.0, 20.0, 30.0, 40.0]
