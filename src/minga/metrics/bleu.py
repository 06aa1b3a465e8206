"""BLEU of generated sentences (Papineni et al., 2002): of the whole test set, never a mean over sentences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from minga.errors import WorkloadError
from minga.metrics.metric import Metric

__all__ = ["Bleu"]


@dataclass(frozen=True, kw_only=True)
class Bleu(Metric):
    """Precision of n-grams up to `order`, each counted as often as in the reference that has it most, geometric mean.

    Outputs are samples x words, the sentences that were generated; targets samples x references x words. Words are
    numbers, and a sentence ends before the first `end`; an empty reference is none. What is shorter than the reference
    nearest in length pays a penalty. There is no smoothing.
    """

    order: int = 4
    """The longest n-grams that count: BLEU-1 to BLEU-4."""

    end: int = 0
    """The number that ends a sentence and fills up what is too short."""

    ignored: frozenset[int] = frozenset()
    """Words that don't count, in what is generated as in references."""

    def __post_init__(self) -> None:
        if self.order < 1:
            raise WorkloadError(f"Bleu: order should be at least 1, not {self.order}")

    def state(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Matches of each order, n-grams of each order, words generated, words of the nearest references."""
        if outputs.dim() != 2 or targets.dim() != 3 or len(outputs) != len(targets):
            raise WorkloadError(
                "BLEU is of sentences samples x words and references samples x references x words, "
                f"not of {tuple(outputs.shape)} and {tuple(targets.shape)}"
            )
        matches, possible = [0] * self.order, [0] * self.order
        words = nearest_words = 0
        for generated, several in zip(outputs.tolist(), targets.tolist(), strict=True):
            sentence = self._cut(generated)
            references = [cut for cut in map(self._cut, several) if cut]
            if not references:
                raise WorkloadError("BLEU: a sample has no reference; leave such samples out")
            words += len(sentence)
            nearest_words += min(map(len, references), key=lambda length: (abs(length - len(sentence)), length))
            for n in range(1, self.order + 1):
                most: Counter[tuple[int, ...]] = Counter()
                for reference in references:
                    most |= _grams(reference, n)
                matches[n - 1] += (_grams(sentence, n) & most).total()
                possible[n - 1] += max(len(sentence) - n + 1, 0)
        return torch.tensor([*matches, *possible, words, nearest_words], dtype=torch.float64)

    def value(self, state: Tensor) -> float:
        numbers = [float(number) for number in state]
        matches, possible = numbers[: self.order], numbers[self.order : 2 * self.order]
        words, nearest_words = numbers[2 * self.order :]
        if min(matches) == 0:
            return 0.0
        logarithm = sum(math.log(match / of) for match, of in zip(matches, possible, strict=True)) / self.order
        return math.exp(logarithm + min(0.0, 1 - nearest_words / words))

    def _cut(self, sentence: list[int]) -> list[int]:
        cut = sentence[: sentence.index(self.end)] if self.end in sentence else sentence
        return [word for word in cut if word not in self.ignored]


def _grams(sentence: Sequence[int], n: int) -> Counter[tuple[int, ...]]:
    return Counter(tuple(sentence[at : at + n]) for at in range(len(sentence) - n + 1))
