"""Prices of many candidates, on several cores where there are enough of them: none needs to know of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import torch

from minga.base.process_pool import Pool
from minga.errors import MingaError
from minga.plan.candidates import Candidate
from minga.plan.cluster import PlannedCluster
from minga.plan.pricing import Price, price
from minga.simulate.profile import Profile

__all__ = ["price_all"]

# A process takes some seconds to begin, about as long as pricing so many.
_WORTH_A_PROCESS = 40


@dataclass(frozen=True)
class _Question:
    """What is the same for all candidates."""

    profile: Profile
    cluster: PlannedCluster
    total_batch: int | None

    def answer(self, candidate: Candidate) -> Price | str:
        try:
            return price(candidate, self.profile, self.cluster, total_batch=self.total_batch)
        except MingaError as error:
            return str(error)


def price_all(
    candidates: Sequence[Candidate],
    profile: Profile,
    cluster: PlannedCluster,
    *,
    total_batch: int | None = None,
    processes: int = 1,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[Price | str]:
    """The price of each or, in words, why it has none. `processes`: at most so many; what is found is the same."""
    question = _Question(profile, cluster, total_batch)
    processes = min(processes, len(candidates) // _WORTH_A_PROCESS)
    found: dict[int, Price | str] = {}
    if processes > 1:
        found = _side_by_side(question, candidates, processes, progress)
    for place, candidate in enumerate(candidates):
        if place not in found:
            progress(len(found), len(candidates))
            found[place] = question.answer(candidate)
    progress(len(candidates), len(candidates))
    return [found[place] for place in range(len(candidates))]


def _side_by_side(
    question: _Question, candidates: Sequence[Candidate], processes: int, progress: Callable[[int, int], None]
) -> dict[int, Price | str]:
    """By place; those are missing that a process was killed over, perhaps for want of memory."""
    found: dict[int, Price | str] = {}
    progress(0, len(candidates))
    with Pool(processes, _begin, (question,)) as pool:
        places = {pool.submit(_answer, candidate): place for place, candidate in enumerate(candidates)}
        try:
            for answer in as_completed(places):
                found[places[answer]] = answer.result()
                progress(len(found), len(candidates))
        except BrokenProcessPool:
            pass
    return found


_here: list[_Question] = []
"""In a process of its own: what it was begun with."""


def _begin(question: _Question) -> None:
    torch.set_num_threads(1)
    _here.append(question)


def _answer(candidate: Candidate) -> Price | str:
    return _here[0].answer(candidate)
