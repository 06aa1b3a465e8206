"""The embedded digits are the ones that everybody knows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from minga.workloads.digits import load_digits


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor]:
    return load_digits()


def test_there_are_1797_pictures_of_8x8_with_one_channel(digits: tuple[Tensor, Tensor]) -> None:
    pictures, classes = digits
    assert pictures.shape == (1797, 1, 8, 8)
    assert classes.shape == (1797,)


def test_pictures_are_floats_and_classes_are_indices(digits: tuple[Tensor, Tensor]) -> None:
    pictures, classes = digits
    assert (pictures.dtype, classes.dtype) == (torch.float32, torch.int64)


def test_values_are_sixteenths_from_0_to_1(digits: tuple[Tensor, Tensor]) -> None:
    assert (digits[0].unique() * 16).tolist() == list(range(17))


def test_each_of_ten_classes_has_its_known_number_of_pictures(digits: tuple[Tensor, Tensor]) -> None:
    assert torch.bincount(digits[1]).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_the_order_is_the_original_one(digits: tuple[Tensor, Tensor]) -> None:
    pictures, classes = digits
    assert classes[:10].tolist() == list(range(10))
    assert (pictures[0, 0, 0] * 16).tolist() == [0, 0, 5, 13, 9, 1, 0, 0]


def test_pictures_and_classes_belong_together(digits: tuple[Tensor, Tensor]) -> None:
    """The mean picture of a class is nearest to most of its pictures."""
    pictures, classes = digits[0].flatten(1), digits[1]
    means = torch.stack([pictures[classes == digit].mean(dim=0) for digit in range(10)])
    nearest = torch.cdist(pictures, means).argmin(dim=1)
    assert (nearest == classes).float().mean() > 0.85
