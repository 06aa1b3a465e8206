"""Metrics of language models: perplexity, and the part of words that is told right."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy

from minga.metrics.metric import IGNORED, Mean

__all__ = ["Perplexity", "WordAccuracy"]


def _counting(targets: Tensor, padding: int | None) -> Tensor:
    kept = targets != IGNORED
    return kept if padding is None else kept & (targets != padding)


@dataclass(frozen=True, kw_only=True)
class Perplexity(Mean):
    """Among how many equally likely words the model is undecided: e to the mean cross entropy of a word.

    Outputs are places x words (logits), with as many axes before as targets have, which are the word at each place; or
    they are of the places that count alone, one after another.
    """

    lower_is_better = True

    padding: int | None = None
    """The word that fills up what is too short; it does not count, nor does -100."""

    def sum_and_count(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
        kept = _counting(targets, self.padding)
        count = int(kept.sum())
        logits = outputs if outputs.dim() == 2 and len(outputs) == count else outputs[kept]
        return cross_entropy(logits.double(), targets[kept], reduction="sum"), count

    def value(self, state: Tensor) -> float:
        mean = super().value(state)
        return math.inf if mean >= 700 else math.exp(mean)  # also of what is no number


@dataclass(frozen=True, kw_only=True)
class WordAccuracy(Mean):
    """The part of all places at which the most likely word is the right one."""

    padding: int | None = None
    """The word that fills up what is too short; it does not count, nor does -100."""

    def sum_and_count(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
        kept = _counting(targets, self.padding)
        return ((outputs.argmax(dim=-1) == targets) & kept).sum(), int(kept.sum())
