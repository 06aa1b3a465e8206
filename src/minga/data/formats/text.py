"""A text as pieces of so many characters, each with the characters that follow: for language models.

numbers, characters = as_numbers(plain_text(path))              # each character that occurs has a number
inputs, targets = pieces(numbers, context=64)                   # for each character the one that follows it
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from minga.data.formats.base import OnePassReader, RawSample
from minga.data.packed import open_text
from minga.errors import DataError

__all__ = ["TextReader", "as_numbers", "pieces"]

_BLOCK = 1 << 20
_MOST_CHARACTERS = 1 << 16


def as_numbers(text: str) -> tuple[NDArray[np.int64], list[str]]:
    """The text as numbers, and the characters that they stand for: all that occur, in the order of Unicode."""
    characters = sorted(set(text))
    number_of = {character: number for number, character in enumerate(characters)}
    return np.array([number_of[character] for character in text], dtype=np.int64), characters


def pieces(numbers: NDArray[np.int64], context: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Inputs of `context` characters one after another, and for each of these characters the one that follows it.

    What is left at the end and would not fill a piece is left out.
    """
    count = max(0, len(numbers) - 1) // context
    stop = count * context
    return numbers[:stop].reshape(count, context), numbers[1 : stop + 1].reshape(count, context)


class TextReader(OnePassReader):
    """Pieces of a text in UTF-8 that need not fit into memory; the characters that occur are counted before."""

    in_order = True

    def __init__(self, path: Path, context: int) -> None:
        if context < 1:
            raise DataError(f"a piece should have at least 1 character, not {context}")
        self._path = path
        self._context = context
        seen: set[str] = set()
        length = 0
        with open_text(self._path) as text:
            while block := text.read(_BLOCK):
                seen.update(block)
                length += len(block)
                if len(seen) > _MOST_CHARACTERS:
                    raise DataError(f"{path} has more than {_MOST_CHARACTERS:,} different characters; is it a text?")
        self._pieces = max(0, (length - 1) // context)
        if not self._pieces:
            raise DataError(f"{path} has {length:,} characters, which don't fill a piece of {context} and one more")
        characters = sorted(seen)
        self._numbers = {character: number for number, character in enumerate(characters)}
        self._type = np.uint8 if len(seen) <= 256 else np.int32
        self.facts = {"characters": "".join(characters), "context": context}

    def __len__(self) -> int:
        return self._pieces

    def name_of(self, index: int) -> str:
        return f"characters from {index * self._context:,} on"

    def rows(self) -> Iterator[str]:
        """Each piece with the character that follows it."""
        with open_text(self._path) as text:
            piece = text.read(self._context + 1)
            while len(piece) > self._context:
                yield piece
                piece = piece[-1] + text.read(self._context)

    def sample_of(self, index: int, row: str) -> RawSample:
        numbers = np.array([self._numbers[character] for character in row], dtype=self._type)
        return {"inputs": numbers[:-1], "targets": numbers[1:]}
