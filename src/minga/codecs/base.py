"""What a codec is: the form that a vector has on the wire."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from minga.base.spec import Named
from minga.codecs.cost import accounted
from minga.codecs.stream import Stream

__all__ = ["BiasedCodec", "Codec"]


@dataclass(frozen=True, kw_only=True)
class Codec(Named, ABC):
    """How a vector is squeezed before it is sent.

    `encode` makes a 1-D tensor of a size that depends only on the vector's length, type and layers; `decode` undoes
    it, with the same bits on every rank. What a codec remembers between vectors is in the `Stream`.
    """

    kind = "codec"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        accounted(cls)

    changes_form: ClassVar[bool] = True
    """False where the encoded vector is the vector itself."""

    @property
    def linear(self) -> bool:
        """Whether sums of encoded vectors are encoded sums, so that any collective can add them up on the way. The
        others are sent to everybody, who decodes and averages them."""
        return False

    faithful: ClassVar[bool] = True
    """Whether a single encoded vector is close to the vector, so that parameters can travel in it. The others are for
    what is sent again and again, gradients and differences, where what is left out can follow later."""

    biased: ClassVar[bool] = False
    """Whether it errs in one direction, and so needs error feedback."""

    @property
    def owes(self) -> bool:
        """Whether a vector may lack something on the other side, for now or for good."""
        return False

    @property
    def corrects_momentum(self) -> bool:
        """Whether momentum is accumulated here, before what is sent is chosen, instead of in the optimizer."""
        return False

    @abstractmethod
    def encode(self, vector: Tensor, stream: Stream) -> Tensor:
        """What goes over the wire; may be `vector` itself when nothing is squeezed. `vector` is left as it is."""

    def encode_once(self, vector: Tensor, stream: Stream) -> Tensor:
        """As `encode`, for callers that themselves keep what was left out, as differences do."""
        return self.encode(vector, stream)

    @abstractmethod
    def decode(self, encoded: Tensor, into: Tensor, stream: Stream) -> None:
        """Undo `encode`, writing to `into`; of the stream, only the shapes and the shared seed are looked at."""

    @abstractmethod
    def encoded_like(self, vector: Tensor, stream: Stream) -> Tensor:
        """Space for receiving what `encode` makes of a vector like this one: its size is the size on the wire."""

    def encoded_bytes(self, vector: Tensor, stream: Stream) -> int:
        """Bytes on the wire for a vector like this one, from one rank to another."""
        return self.encoded_like(vector, stream).nbytes

    def summed_like(self, vector: Tensor, stream: Stream) -> list[Tensor]:
        """For linear codecs: what is added up over all ranks for a vector like this one, in this order."""
        return [self.encoded_like(vector, stream)]

    def mean_by_sums(self, vector: Tensor, ranks: int, stream: Stream, add_up: Callable[[Tensor], None]) -> None:
        """For linear codecs: `vector` becomes its mean over ranks, by adding up encoded vectors over them."""
        assert self.linear, f"{type(self).__name__} can't be added up"
        encoded = self.encode(vector / ranks if self.changes_form else vector.div_(ranks), stream)
        add_up(encoded)
        self.decode(encoded, vector, stream)


accounted(Codec)  # type: ignore[type-abstract]  # its own methods too


@dataclass(frozen=True, kw_only=True)
class BiasedCodec(Codec):
    """A codec that leaves something out: what it left out is added to the next vector (Seide et al., 2014).

    With this error feedback everything arrives in the end (Stich & Karimireddy, arXiv:1909.05350); without it, what
    is always left out is never learnt.
    """

    biased: ClassVar[bool] = True

    feedback: bool = True
    """Add what was left out to the next vector; false only to see what happens without."""

    @property
    def owes(self) -> bool:
        return self.biased or self.feedback

    @abstractmethod
    def compress(self, vector: Tensor, stream: Stream) -> Tensor:
        """What goes over the wire for this vector alone."""

    def compress_to_mean(
        self, vector: Tensor, ranks: int, stream: Stream, add_up: Callable[[Tensor], None]
    ) -> tuple[Tensor, Tensor]:
        """For linear codecs: what this rank gave for its vector, and what all gave in the mean, both encoded."""
        raise NotImplementedError(f"{type(self).__name__} can't be added up")

    def encode(self, vector: Tensor, stream: Stream) -> Tensor:
        owed = self.owe(vector, stream)
        encoded = self.compress(owed, stream)
        if self.feedback:
            self.settle(owed, encoded, stream)
        stream.count += 1
        return encoded

    def encode_once(self, vector: Tensor, stream: Stream) -> Tensor:
        encoded = self.compress(vector, stream)
        stream.count += 1
        return encoded

    def mean_by_sums(self, vector: Tensor, ranks: int, stream: Stream, add_up: Callable[[Tensor], None]) -> None:
        owed = self.owe(vector, stream)
        given, mean = self.compress_to_mean(owed, ranks, stream, add_up)
        if self.feedback:
            self.settle(owed, given, stream)
        stream.count += 1
        self.decode(mean, vector, stream)

    def owe(self, vector: Tensor, stream: Stream) -> Tensor:
        """The vector together with what is still owed; with feedback it is the stream's own tensor."""
        if not self.feedback:
            return vector
        if stream.residual is None:
            stream.residual = vector.clone()
        else:
            stream.residual.add_(vector)
        return stream.residual

    def settle(self, owed: Tensor, encoded: Tensor, stream: Stream) -> None:
        """What was sent is owed no more: take it out, in place."""
        sent = torch.empty_like(owed)
        self.decode(encoded, sent, stream)
        owed.sub_(sent)
