"""Whose steps are in the parameters, as far as is known."""

from __future__ import annotations

import torch

from minga.model.progress import Progress


def progress_of(ranks: int, *, length: int = 6) -> Progress:
    made = Progress(torch.zeros(length), torch.zeros(length))
    made.begin(0, ranks)
    return made


def test_what_is_merged_stays_merged() -> None:
    """Whoever is met later may know less of somebody, also of this rank itself."""
    progress = progress_of(3)
    progress.step = 7
    progress.merge_ranks([0])
    progress.merge([2, 5, 0])
    assert progress.merged_steps == [7, 5, 0]
    progress.merge([3, 1, 4])
    assert progress.merged_steps == [7, 5, 4]


def test_parts_count_as_far_as_all_of_them_are_merged() -> None:
    progress = progress_of(2)
    progress.merge([4, 4], slice(0, 3))
    assert progress.merged_steps == [0, 0]
    progress.merge([2, 6], slice(3, 6))
    assert progress.merged_steps == [2, 4]
    progress.merge(3)
    assert progress.merged_steps == [3, 4]
