"""Who carries codecs out: each does so itself, unless something else was put in place.

    with carried_out_by(PricedCodecs(...)):          # a simulation, where encoding takes virtual time
        ...

Strategies and collectives call `codec.encode`, `decode` and `mean_by_sums`, which come here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from minga.codecs.base import Codec
    from minga.codecs.stream import Stream

__all__ = ["CodecRuntime", "carried_out_by", "runtime"]


class CodecRuntime:
    """Has the codec do it."""

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


def runtime() -> CodecRuntime:
    return _runtime


@contextlib.contextmanager
def carried_out_by(other: CodecRuntime) -> Iterator[None]:
    """Meanwhile, in this process, codecs are carried out by another runtime."""
    global _runtime
    before, _runtime = _runtime, other
    try:
        yield
    finally:
        _runtime = before
