"""BLEU of sentences as people read them.

bleu_of_texts(["a dog runs"], [["a brown dog runs", "the dog runs"]])          # {"BLEU-1": 1.0, ...}
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from minga.data.formats.vocabulary import Vocabulary, padded, padded_groups
from minga.metrics.bleu import Bleu

__all__ = ["bleu_of_texts"]


def bleu_of_texts(
    said: Sequence[str], references: Sequence[Sequence[str]], *, ignored: Collection[str] = ()
) -> dict[str, float]:
    """BLEU-1 to BLEU-4 of sentences against what people said: small letters, no punctuation, no numbers."""
    vocabulary = Vocabulary.of([*said, *(each for several in references for each in several)], at_least=1)
    outputs = torch.from_numpy(padded([vocabulary.reference(each) for each in said]))
    groups = [[vocabulary.reference(each) for each in several] for several in references]
    targets = torch.from_numpy(padded_groups(groups))
    left_out = frozenset(vocabulary.numbers[word] for word in ignored if word in vocabulary.numbers)
    metrics = {f"BLEU-{order}": Bleu(order=order, ignored=left_out) for order in range(1, 5)}
    return {name: metric.value(metric.state(outputs, targets)) for name, metric in metrics.items()}
