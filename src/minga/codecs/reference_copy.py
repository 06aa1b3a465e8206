"""Sending a vector that changes slowly, such as parameters, as encoded differences to what the others know of it."""

from __future__ import annotations

from typing import ClassVar

from minga.base.lazy import Tensor, torch
from minga.codecs.base import Codec
from minga.codecs.stream import Stream

__all__ = ["ReferenceCopy"]


class ReferenceCopy:
    """What the others know of a vector; sender and receivers each keep one, with the same bits.

    What a codec leaves out of one difference is still missing in the copy, so it comes with a later one: error
    feedback without a residual (Richtárik et al., arXiv:2106.05203; Koloskova et al., arXiv:1902.00340).
    """

    remembers: ClassVar[tuple[str, ...]] = ("known",)

    def __init__(self, known: Tensor, codec: Codec, stream: Stream) -> None:
        """`known` is kept and changed."""
        self.known = known
        self._codec = codec
        self._stream = stream

    def encode(self, vector: Tensor) -> Tensor:
        """What must be sent so that the others come closer to `vector`; the copy already has it."""
        encoded = self._codec.encode_once(vector - self.known, self._stream)
        self.apply(encoded)
        return encoded

    def apply(self, encoded: Tensor) -> None:
        """Take in what was sent."""
        difference = torch.empty_like(self.known)
        self._codec.decode(encoded, difference, self._stream)
        self.known.add_(difference)

    def landing(self) -> Tensor:
        """Space for receiving what `encode` makes."""
        return self._codec.encoded_like(self.known, self._stream)
