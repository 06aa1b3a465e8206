"""A word that tells whether two machines have the same data."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import Dataset, TensorDataset

from minga.data.fingerprint import fingerprint


def made(change: int | None = None, samples: int = 40) -> TensorDataset:
    pictures = torch.arange(samples * 4, dtype=torch.float32).reshape(samples, 4)
    if change is not None:
        pictures[change] += 1
    return TensorDataset(pictures, torch.zeros(samples, dtype=torch.int64))


class Noisy(Dataset[Any]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        return {"picture": torch.randn(3), "class": index, "name": f"{index}.png"}


def test_the_same_data_has_the_same_word_and_other_data_another() -> None:
    assert fingerprint(made()) == fingerprint(made())
    assert fingerprint(made()).startswith("40 samples, ")
    assert fingerprint(made(change=0)) != fingerprint(made())
    assert fingerprint(made(change=39)) != fingerprint(made())
    assert fingerprint(made(change=1)) != fingerprint(made())
    assert fingerprint(made(samples=41)) != fingerprint(made())


def test_samples_that_change_from_look_to_look_keep_nobody_out() -> None:
    assert fingerprint(Noisy()) == fingerprint(Noisy())
