"""What a codec is: the form that a vector has on the wire. And who carries codecs out.

with carried_out_by(PricedCodecs(...)):          # a simulation, where encoding takes virtual time
    ...
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from minga.base.lazy import Tensor, torch
from minga.base.spec import Named
from minga.codecs.stream import Stream

__all__ = ["BiasedCodec", "Codec", "CodecRuntime", "carried_out_by"]


@dataclass(frozen=True, kw_only=True)
class Codec(Named, ABC):
    """How a vector is squeezed before it is sent.

    `compress` makes a 1-D tensor of a size that depends only on the vector's length, type and layers; `decompress`
    undoes it, with the same bits on every rank. What a codec remembers between vectors is in the `Stream`. Strategies
    and collectives call `encode`, `decode` and `mean_by_sums`.
    """

    kind = "codec"

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

    epochs_factor: ClassVar[float] = 1.0
    """How many epochs planning assumes for what training without it learns in one."""

    @property
    def leaves_out(self) -> bool:
        """Whether a vector may lack something on the other side, for now or for good."""
        return False

    @property
    def corrects_momentum(self) -> bool:
        """Whether momentum is accumulated here, before what is sent is chosen, instead of in the optimizer."""
        return False

    # --- what a codec is made of ------------------------------------------------------------------------------------

    @abstractmethod
    def compress(self, vector: Tensor, stream: Stream) -> Tensor:
        """What goes over the wire for this vector alone; may be `vector` itself when nothing is squeezed. `vector` is
        left as it is."""

    @abstractmethod
    def decompress(self, encoded: Tensor, into: Tensor, stream: Stream) -> None:
        """Undo `compress`, writing to `into`; of the stream, only the shapes and the shared seed are looked at."""

    @abstractmethod
    def encoded_like(self, vector: Tensor, stream: Stream) -> Tensor:
        """Space for receiving what `encode` makes of a vector like this one: its size is the size on the wire."""

    def summed_like(self, vector: Tensor, stream: Stream) -> list[Tensor]:
        """For linear codecs: what is added up over all ranks for a vector like this one, in this order."""
        return [self.encoded_like(vector, stream)]

    def compress_next(self, vector: Tensor, stream: Stream) -> Tensor:
        """`compress` for the next vector of a stream; biased codecs have error feedback here."""
        return self.compress(vector, stream)

    def compress_once(self, vector: Tensor, stream: Stream) -> Tensor:
        """The same without error feedback."""
        return self.compress(vector, stream)

    def compress_and_add_up(self, vector: Tensor, ranks: int, stream: Stream, add_up: Callable[[Tensor], None]) -> None:
        """For linear codecs: `mean_by_sums`."""
        encoded = self.compress(vector / ranks if self.changes_form else vector.div_(ranks), stream)
        add_up(encoded)
        self.decompress(encoded, vector, stream)

    # --- what others call -------------------------------------------------------------------------------------------

    def encode(self, vector: Tensor, stream: Stream) -> Tensor:
        """What goes over the wire; may be `vector` itself when nothing is squeezed. `vector` is left as it is."""
        return _runtime.encode(self, vector, stream)

    def encode_once(self, vector: Tensor, stream: Stream) -> Tensor:
        """As `encode`, for callers that themselves keep what was left out, as differences do."""
        return _runtime.encode(self, vector, stream, once=True)

    def decode(self, encoded: Tensor, into: Tensor, stream: Stream) -> None:
        """Undo `encode`, writing to `into`."""
        _runtime.decode(self, encoded, into, stream)

    def mean_by_sums(self, vector: Tensor, ranks: int, stream: Stream, add_up: Callable[[Tensor], None]) -> None:
        """For linear codecs: `vector` becomes its mean over ranks, by adding up encoded vectors over them."""
        assert self.linear, f"{type(self).__name__} can't be added up"
        _runtime.mean_by_sums(self, vector, ranks, stream, add_up)

    def residual_after(self, vector: Tensor, stream: Stream) -> float | None:
        """Encode a vector for trial: the norm of the residual then; None where that can't be known."""
        return _runtime.residual_after(self, vector, stream)

    def encoded_bytes(self, vector: Tensor, stream: Stream) -> int:
        """Bytes on the wire for a vector like this one, from one rank to another."""
        return self.encoded_like(vector, stream).nbytes


@dataclass(frozen=True, kw_only=True)
class BiasedCodec(Codec):
    """A codec that leaves something out: the residual is added to the next vector (Seide et al., 2014).

    With this error feedback everything arrives in the end (Stich & Karimireddy, arXiv:1909.05350); without it, what
    is always left out is never learnt.
    """

    biased: ClassVar[bool] = True
    epochs_factor: ClassVar[float] = 1.01

    feedback: bool = True
    """Add the residual to the next vector; false only to see what happens without."""

    @property
    def leaves_out(self) -> bool:
        return self.biased or self.feedback

    def compress_to_mean(
        self, vector: Tensor, ranks: int, stream: Stream, add_up: Callable[[Tensor], None]
    ) -> tuple[Tensor, Tensor]:
        """For linear codecs: what this rank gave for its vector, and what all gave in the mean, both encoded."""
        raise NotImplementedError(f"{type(self).__name__} can't be added up")

    def compress_next(self, vector: Tensor, stream: Stream) -> Tensor:
        whole = self.add_residual(vector, stream)
        encoded = self.compress(whole, stream)
        if self.feedback:
            self.take_out(whole, encoded, stream)
        stream.count += 1
        return encoded

    def compress_once(self, vector: Tensor, stream: Stream) -> Tensor:
        encoded = self.compress(vector, stream)
        stream.count += 1
        return encoded

    def compress_and_add_up(self, vector: Tensor, ranks: int, stream: Stream, add_up: Callable[[Tensor], None]) -> None:
        whole = self.add_residual(vector, stream)
        given, mean = self.compress_to_mean(whole, ranks, stream, add_up)
        if self.feedback:
            self.take_out(whole, given, stream)
        stream.count += 1
        self.decompress(mean, vector, stream)

    def add_residual(self, vector: Tensor, stream: Stream) -> Tensor:
        """The vector together with the residual; with feedback it is the stream's own tensor."""
        if not self.feedback:
            return vector
        if stream.residual is None:
            stream.residual = vector.clone()
        else:
            stream.residual.add_(vector)
        return stream.residual

    def take_out(self, whole: Tensor, encoded: Tensor, stream: Stream) -> None:
        """What was sent is no longer in the residual: take it out of `whole`, in place."""
        sent = torch.empty_like(whole)
        self.decompress(encoded, sent, stream)
        whole.sub_(sent)


class CodecRuntime:
    """Carries codecs out: each does it itself. What strategies and collectives call comes here."""

    def encode(self, codec: Codec, vector: Tensor, stream: Stream, *, once: bool = False) -> Tensor:
        return codec.compress_once(vector, stream) if once else codec.compress_next(vector, stream)

    def decode(self, codec: Codec, encoded: Tensor, into: Tensor, stream: Stream) -> None:
        codec.decompress(encoded, into, stream)

    def mean_by_sums(
        self, codec: Codec, vector: Tensor, ranks: int, stream: Stream, add_up: Callable[[Tensor], None]
    ) -> None:
        codec.compress_and_add_up(vector, ranks, stream, add_up)

    def residual_after(self, codec: Codec, vector: Tensor, stream: Stream) -> float | None:
        codec.encode(vector, stream)
        return 0.0 if stream.residual is None else float(stream.residual.norm())


_runtime = CodecRuntime()


@contextlib.contextmanager
def carried_out_by(other: CodecRuntime) -> Iterator[None]:
    """Meanwhile, in this process, codecs are carried out by another runtime."""
    global _runtime
    before, _runtime = _runtime, other
    try:
        yield
    finally:
        _runtime = before
