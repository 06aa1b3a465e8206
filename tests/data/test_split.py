"""Which sample goes to which part: fairly, by a seed, and always the same."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minga.data.formats.base import PARTS
from minga.data.split import divide, drawn_by_class, parse_fractions
from minga.errors import DataError


def test_every_class_is_divided_in_the_same_proportions() -> None:
    numbers = np.repeat([0, 1, 2], [1000, 100, 10])
    found = drawn_by_class(numbers, (0.85, 0.02, 0.13), seed=1)
    counted = [Counter(numbers[found == part].tolist()) for part in range(3)]
    assert [dict(each) for each in counted] == [{0: 850, 1: 85, 2: 8}, {0: 20, 1: 2}, {0: 130, 1: 13, 2: 2}]


def test_the_seed_decides_who_is_where() -> None:
    numbers = np.tile([0, 1], 50)
    first, again, other = (drawn_by_class(numbers, (0.5, 0.5), seed=seed).tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_splits_of_published_results_stay_as_they_were() -> None:
    numbers = np.repeat([0, 1, 2], [9, 8, 7])
    assert "".join(map(str, drawn_by_class(numbers, (0.5, 0.2, 0.3), seed=34))) == "020021120101200200001202"
    split = divide(numbers, count=24, fractions=(0.5, 0.2, 0.3), given=None, seed=34)
    assert "".join(map(str, split.part)) == "010220210220100101202000"
    assert split.position.tolist() == [1, 2, 11, 1, 6, 0, 0, 4, 10, 2, 4, 6, 0, 8, 2, 1, 3, 3, 5, 7, 3, 4, 9, 5]


# --- of prepared sets -----------------------------------------------------------------------------------------------


def test_the_rests_of_small_classes_go_to_all_parts() -> None:
    labels = np.repeat(np.arange(100), 5)
    split = divide(labels, count=500, fractions=(0.8, 0.1, 0.1), given=None, seed=0)
    assert split.counts == [400, 50, 50]


def test_the_split_of_the_fish() -> None:
    labels = np.repeat(np.arange(9), 1000)
    split = divide(labels, count=9000, fractions=(0.85, 0.02, 0.13), given=None, seed=0)
    assert split.counts == [7650, 180, 1170]
    for part, size in enumerate((850, 20, 130)):
        assert np.bincount(labels[split.part == part]).tolist() == [size] * 9


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    fractions=st.sampled_from([(0.85, 0.02, 0.13), (0.8, 0.0, 0.2), (1.0, 0.0, 0.0), (0.34, 0.33, 0.33)]),
    seed=st.integers(0, 5),
)
@settings(deadline=None)
def test_every_place_is_taken_once(sizes: list[int], fractions: tuple[float, ...], seed: int) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    split = divide(labels, count=len(labels), fractions=fractions, given=None, seed=seed)
    assert sum(split.counts) == len(labels)
    for part in range(len(PARTS)):
        assert sorted(split.position[split.part == part].tolist()) == list(range(split.counts[part]))
        for label, size in enumerate(sizes):
            assert abs(int(((split.part == part) & (labels == label)).sum()) - size * fractions[part]) < 1


def test_fractions_as_people_write_them() -> None:
    assert parse_fractions("85,2,13") == pytest.approx((0.85, 0.02, 0.13))
    assert parse_fractions("0.8,0.2") == pytest.approx((0.8, 0, 0.2))
    for wrong in ("85,2", "a,b", "100", "50,20,20,10", "-10,110", "0,100", "nan,50,50", "50,nan,50", "inf,1,1"):
        with pytest.raises(DataError, match="such as 85,2,13"):
            parse_fractions(wrong)
