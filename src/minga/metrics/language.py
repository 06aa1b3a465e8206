"""Metrics of language models: perplexity, and the part of words that is told right."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from minga.metrics.metric import IGNORED, Metric

__all__ = ["Perplexity", "WordAccuracy"]


def _counting(targets: Tensor, padding: int | None) -> Tensor:
    kept = targets != IGNORED
    return kept if padding is None else kept & (targets != padding)


@dataclass(frozen=True, kw_only=True)
class Perplexity(Metric):
    """Among how many equally likely words the model is undecided: e to the mean cross entropy of a word.

    Outputs are places x words (logits), with as many axes before as targets have, which are the word at each place; or
    they are of the places that count alone, one after another.
    """

    lower_is_better = True

    padding: int | None = None
    """The word that fills up what is too short; it does not count, nor does -100."""

    def state(self, outputs: Tensor, targets: Tensor) -> Tensor:
        kept = _counting(targets, self.padding)
        logits = outputs if outputs.dim() == 2 and len(outputs) == int(kept.sum()) else outputs[kept]
        entropies = cross_entropy(logits.double(), targets[kept], reduction="sum")
        return torch.tensor([float(entropies), float(kept.sum())], dtype=torch.float64)

    def value(self, state: Tensor) -> float:
        mean = float(state[0] / state[1])
        return math.inf if mean >= 700 else math.exp(mean)  # also of what is no number


@dataclass(frozen=True, kw_only=True)
class WordAccuracy(Metric):
    """The part of all places at which the most likely word is the right one."""

    padding: int | None = None
    """The word that fills up what is too short; it does not count, nor does -100."""

    def state(self, outputs: Tensor, targets: Tensor) -> Tensor:
        kept = _counting(targets, self.padding)
        right = (outputs.argmax(dim=-1) == targets) & kept
        return torch.tensor([float(right.sum()), float(kept.sum())], dtype=torch.float64)

    def value(self, state: Tensor) -> float:
        return float(state[0] / state[1])
