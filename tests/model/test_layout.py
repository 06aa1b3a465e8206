"""Where parameters lie in the flat vector, and how it is cut into buckets."""

from __future__ import annotations

import itertools
import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from minga.model.layout import Layout, Place

SIZES = st.lists(st.integers(0, 20), max_size=12)


def buckets(sizes: list[int], elements: int) -> list[list[int]]:
    return [list(bucket) for bucket in layout_of(sizes).buckets(elements)]


def layout_of(sizes: list[int]) -> Layout:
    return Layout.of((f"layer{index}", torch.empty(size)) for index, size in enumerate(sizes))


def test_parameters_lie_one_after_the_other_in_the_order_of_the_model() -> None:
    layout = Layout.of(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)).named_parameters())
    assert layout.places == (
        Place("0.weight", torch.Size([2, 3]), 0, 6),
        Place("0.bias", torch.Size([2]), 6, 8),
        Place("1.weight", torch.Size([1, 2]), 8, 10),
        Place("1.bias", torch.Size([1]), 10, 11),
    )
    assert layout.length == 11


def test_a_number_takes_one_element() -> None:
    layout = Layout.of([("temperature", torch.tensor(1.0)), ("weight", torch.empty(2))])
    assert [(place.start, place.stop) for place in layout.places] == [(0, 1), (1, 3)]


def test_nothing_has_no_length_and_no_buckets() -> None:
    assert layout_of([]).length == 0
    assert buckets([], 10) == []


def test_buckets_go_from_the_last_layer_to_the_first() -> None:
    assert buckets([4, 3, 2, 1], 6) == [[1, 2, 3], [0]]


def test_a_layer_that_is_larger_than_a_bucket_has_one_of_its_own() -> None:
    assert buckets([2, 100, 2], 10) == [[2], [1], [0]]


def test_one_bucket_holds_everything_if_it_is_large_enough() -> None:
    assert buckets([2, 3, 5], 10) == [[0, 1, 2]]


@given(sizes=SIZES, elements=st.integers(1, 40))
def test_every_layer_is_in_exactly_one_bucket(sizes: list[int], elements: int) -> None:
    in_order = reversed(buckets(sizes, elements))
    assert list(itertools.chain.from_iterable(in_order)) == list(range(len(sizes)))


@given(sizes=SIZES, elements=st.integers(1, 40))
def test_a_bucket_of_several_layers_is_not_too_large(sizes: list[int], elements: int) -> None:
    for bucket in buckets(sizes, elements):
        assert len(bucket) == 1 or sum(sizes[index] for index in bucket) <= elements


@given(sizes=SIZES, elements=st.integers(1, 40))
def test_a_bucket_ends_only_where_the_next_layer_would_not_fit(sizes: list[int], elements: int) -> None:
    for bucket in buckets(sizes, elements):
        if bucket[0] > 0:
            assert sum(sizes[index] for index in bucket) + sizes[bucket[0] - 1] > elements


def test_a_layer_that_is_cut_stays_a_matrix_as_far_as_its_rows_are_whole() -> None:
    layout = Layout.of([("first", torch.empty(4)), ("matrix", torch.empty(5, 2, 3)), ("last", torch.empty(7))])
    assert layout.shapes(0, 41) == [(4,), (5, 2, 3), (7,)]
    assert layout.shapes(0, 16) == [(4,), (2, 2, 3)]
    assert layout.shapes(16, 41) == [(3, 2, 3), (7,)]
    assert layout.shapes(2, 24) == [(2,), (3, 2, 3), (2,)]
    assert layout.shapes(6, 36) == [(4,), (4, 2, 3), (2,)]
    assert layout.shapes(11, 21) == [(10,)], "no whole row"


@given(
    shapes=st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=5), cuts=st.lists(st.integers(0, 200), max_size=4)
)
def test_cut_layers_have_as_many_elements_as_there_are(shapes: list[list[int]], cuts: list[int]) -> None:
    layout = Layout.of((str(index), torch.empty(shape)) for index, shape in enumerate(shapes))
    borders = sorted({0, layout.length, *(min(cut, layout.length) for cut in cuts)})
    for start, stop in itertools.pairwise(borders):
        assert sum(math.prod(shape) for shape in layout.shapes(start, stop)) == stop - start
