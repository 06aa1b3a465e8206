"""Text as numbers: each different character has one, and a sample is a piece with the piece that follows it."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import torch
from torch import Tensor

from minga.errors import DataError

__all__ = ["as_numbers", "pieces", "read_text"]


def read_text(path: Path) -> str:
    """The text in `path` or `path.gz`, which is UTF-8."""
    try:
        content = (
            path.read_bytes() if path.is_file() else gzip.decompress(path.with_name(f"{path.name}.gz").read_bytes())
        )
        return content.decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path} can't be read ({error}); fetch the file again") from error


def as_numbers(text: str) -> tuple[Tensor, list[str]]:
    """The text as numbers, and the characters that they stand for: all that occur, in the order of Unicode."""
    characters = sorted(set(text))
    number_of = {character: number for number, character in enumerate(characters)}
    return torch.tensor([number_of[character] for character in text], dtype=torch.int64), characters


def pieces(numbers: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """Inputs of `context` characters one after another, and for each of these characters the one that follows it.

    What is left at the end and would not fill a piece is left out.
    """
    count = (len(numbers) - 1) // context
    return numbers[: count * context].view(count, context), numbers[1 : count * context + 1].view(count, context)
