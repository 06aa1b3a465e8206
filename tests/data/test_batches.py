"""From indices to batches of tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset

from minga.data.batches import batches_in_order, fetch, length

CPU = torch.device("cpu")
META = torch.device("meta")  # stands for any other device: values don't matter there
TENSORS = TensorDataset(torch.arange(20.0).view(10, 2), torch.arange(10))


class Squares(Dataset[tuple[float, int]]):
    """Map-style, a sample at a time."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[float, int]:
        return float(index**2), index


class Doubled(TensorDataset):
    """A subclass may change its samples, so its tensors must not be read past it."""

    def __getitem__(self, index: Any) -> Any:
        return tuple(2 * value for value in super().__getitem__(index))


def indices(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int64)


def test_samples_come_in_the_order_of_the_indices() -> None:
    inputs, targets = fetch(TENSORS, indices(7, 0, 3), CPU)
    assert inputs.tolist() == [[14.0, 15.0], [0.0, 1.0], [6.0, 7.0]]
    assert targets.tolist() == [7, 0, 3]


def test_samples_of_any_map_style_data_set_become_a_batch() -> None:
    squares, numbers = fetch(Squares(), indices(3, 1), CPU)
    assert (squares.tolist(), numbers.tolist()) == ([9.0, 1.0], [3, 1])


def test_tensors_are_read_at_once_or_one_by_one_with_the_same_result() -> None:
    one_by_one = Subset(TENSORS, range(10))
    for fast, slow in zip(fetch(TENSORS, indices(2, 9), CPU), fetch(one_by_one, indices(2, 9), CPU), strict=True):
        assert torch.equal(fast, slow)


def test_samples_that_a_subclass_changes_stay_changed() -> None:
    (values,) = fetch(Doubled(torch.arange(5.0)), indices(1, 2), CPU)
    assert values.tolist() == [2.0, 4.0]


def test_a_batch_may_be_a_table() -> None:
    dataset: Any = [{"picture": torch.zeros(2), "class": 1}, {"picture": torch.ones(2), "class": 2}]
    batch = fetch(dataset, indices(1, 0), CPU)
    assert batch["picture"].tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert batch["class"].tolist() == [2, 1]


def test_text_stays_text() -> None:
    dataset: Any = [("a", 1), ("b", 2)]
    texts, numbers = fetch(dataset, indices(0, 1), CPU)
    assert list(texts) == ["a", "b"]
    assert numbers.tolist() == [1, 2]


def tensors_in(batch: Any) -> Iterator[Tensor]:
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, dict | list | tuple):
        for item in batch.values() if isinstance(batch, dict) else batch:
            yield from tensors_in(item)


@pytest.mark.parametrize(
    "dataset", [TENSORS, Squares(), [{"inputs": (1.0, [2.0]), "class": 1}]], ids=["tensors", "map-style", "nested"]
)
def test_all_tensors_of_a_batch_go_to_the_device(dataset: Any) -> None:
    devices = [tensor.device for tensor in tensors_in(fetch(dataset, indices(0), META))]
    assert len(devices) >= 2
    assert set(devices) == {META}


@given(start=st.integers(0, 10), size=st.integers(0, 10), batch=st.integers(1, 12))
def test_batches_in_order_hold_every_sample_of_the_range_once(start: int, size: int, batch: int) -> None:
    stop = min(start + size, 10)
    batches = [targets.tolist() for _, targets in batches_in_order(TENSORS, start, stop, batch, CPU)]
    assert [target for targets in batches for target in targets] == list(range(start, stop))
    assert all(len(targets) == batch for targets in batches[:-1])


def test_length_is_the_data_sets() -> None:
    assert (length(TENSORS), length(Squares())) == (10, 10)


class Pair(NamedTuple):
    inputs: torch.Tensor
    targets: torch.Tensor


def test_named_tuples_stay_named_tuples() -> None:
    samples = [Pair(torch.tensor([float(number)]), torch.tensor(number)) for number in range(4)]
    batch = fetch(samples, torch.tensor([1, 3]), torch.device("cpu"))  # type: ignore[arg-type]
    assert isinstance(batch, Pair)
    assert batch.targets.tolist() == [1, 3]
