"""The largest values of a vector: by a sample as by sorting, whatever the values are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from minga.codecs import top_k
from minga.codecs.top_k import largest, largest_by_sample


def vectors(length: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(length, generator=generator)
    one_large = torch.zeros(length)
    one_large[length // 2] = -3
    return {
        "normal": normal,
        "double": normal.double(),
        "zeros": torch.zeros(length),
        "equal": torch.full((length,), -2.5),
        "mostly zeros": torch.where(normal > 2.8, normal, 0),
        "one large": one_large,
        "whole numbers": normal.mul(2).round(),
        "ascending": torch.arange(length, dtype=torch.float32),
        "descending": -torch.arange(length, dtype=torch.float32).flip(0),
        "heavy tails": normal**7,
    }


@pytest.mark.parametrize("name", vectors(1))
@pytest.mark.parametrize("length", [100, 20_000, 300_001])
def test_a_sample_finds_the_same_values_as_sorting(name: str, length: int) -> None:
    vector = vectors(length)[name]
    for count in (1, length // 100, length // 10, length):
        positions = largest_by_sample(vector, count, torch.Generator().manual_seed(1))
        assert len(positions) == count
        assert bool((positions.diff() > 0).all()), "a position twice, or out of order"
        found, expected = (vector[chosen].abs().sort().values for chosen in (positions, largest(vector, count)))
        assert torch.equal(found, expected)


def test_many_candidates_are_never_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    best = top_k._best

    def watched(vector: Tensor, positions: Tensor, count: int) -> Tensor:
        kept.append(len(positions))
        return best(vector, positions, count)

    monkeypatch.setattr(top_k, "_best", watched)
    # The sample sees zeros only, and every value is larger than all before it.
    vector = torch.arange(2_000_000, dtype=torch.float32)
    positions = top_k._above(vector, 0.0, 1000)
    assert torch.equal(positions[-1000:], torch.arange(2_000_000 - 1000, 2_000_000))
    assert max(kept) <= 2 * (1000 + top_k._PIECE)


def test_an_unlucky_sample_costs_time_only(monkeypatch: pytest.MonkeyPatch) -> None:
    vector = torch.randn(50_000, generator=torch.Generator().manual_seed(2))
    monkeypatch.setattr(top_k, "_above", lambda vector, threshold, count: torch.tensor([], dtype=torch.int64))
    assert torch.equal(largest_by_sample(vector, 500, torch.Generator()), largest(vector, 500))
