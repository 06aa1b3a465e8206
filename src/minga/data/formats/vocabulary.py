"""Words as numbers: those that a network may say, and those that only people have said.

vocabulary = Vocabulary.of(training_captions, others=test_captions, at_least=5)
vocabulary.encode("A dog runs .")          # [START, 4, 17, 9, END]
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

__all__ = ["END", "START", "UNKNOWN", "Vocabulary", "padded", "padded_groups", "words_of"]

END, START, UNKNOWN = 0, 1, 2
"""The end of a sentence, which also fills up what is too short; its beginning; a word too rare to be learned."""

_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")


def words_of(caption: str) -> list[str]:
    """Small letters; no punctuation, no numbers."""
    return _WORD.findall(caption.lower())


@dataclass(frozen=True)
class Vocabulary:
    """Every word has a number, frequent ones the small ones."""

    words: list[str]
    """By number, the three special ones included."""

    known: int
    """The network knows the first so many. Others are in references only, where nothing it says can match them."""

    @classmethod
    def of(cls, learned: Iterable[str], others: Iterable[str] = (), *, at_least: int) -> Vocabulary:
        """Of captions; what occurs `at_least` times in `learned` is known."""
        counts = Counter(word for caption in learned for word in words_of(caption))
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        known = 3 + sum(count >= at_least for count in counts.values())
        more = sorted({word for caption in others for word in words_of(caption)} - counts.keys())
        return cls(["", "<start>", "<unknown>", *ordered, *more], known)

    def encode(self, caption: str) -> list[int]:
        """For the network: rare words are unknown."""
        return [START, *(number if number < self.known else UNKNOWN for number in self.reference(caption)), END]

    def reference(self, caption: str) -> list[int]:
        """As people said it, with all words."""
        return [self.numbers[word] for word in words_of(caption)]

    def text(self, numbers: Sequence[int]) -> str:
        """Words again, up to the end."""
        cut = list(numbers)
        cut = cut[: cut.index(END)] if END in cut else cut
        return " ".join(self.words[number] for number in cut if number != START)

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words)}


def padded(sentences: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Sentences x words, filled up with END."""
    numbers = np.full((len(sentences), max(map(len, sentences), default=0)), END, dtype=np.int64)
    for row, sentence in zip(numbers, sentences, strict=True):
        row[: len(sentence)] = sentence
    return numbers


def padded_groups(groups: Sequence[Sequence[Sequence[int]]]) -> NDArray[np.int64]:
    """Groups x sentences x words, filled up with END."""
    most = max(map(len, groups), default=0)
    together = padded([sentence for group in groups for sentence in [*group, *[[]] * (most - len(group))]])
    return together.reshape(len(groups), most, together.shape[1])
